#include "lockstep/rendezvous/frame.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Frame, AStreamIsCutWhereverItsBytesBreak) {
  const std::string stream = encode_frame(FrameKind::kSet, "one") +
                             encode_frame(FrameKind::kGet, "") +
                             encode_frame(FrameKind::kAdd, std::string("a\0b", 3));
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      while (auto frame = reader.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0].kind, FrameKind::kSet);
    EXPECT_EQ(frames[0].payload, "one");
    EXPECT_EQ(frames[1].payload, "");
    EXPECT_EQ(frames[2].kind, FrameKind::kAdd);
    EXPECT_EQ(frames[2].payload, std::string("a\0b", 3));
  }
}

std::string complaint(std::string_view bytes, std::size_t largest = kLargestPayload) {
  FrameReader reader;
  reader.append(bytes);
  return message_of<CommError>([&] { reader.next(largest); });
}

TEST(Frame, WhatIsNoFrameIsKnownByItsFirstByte) {
  EXPECT_THAT(complaint("GET / HTTP/1.1\r\n"), HasSubstr("not a message of Lockstep"));
  EXPECT_THAT(complaint("x"), HasSubstr("not a message of Lockstep"));
  EXPECT_EQ(complaint(""), "");
  EXPECT_EQ(complaint("Lk"), "");
}

TEST(Frame, SizesAndVersionsAreCheckedByTheHeaderAlone) {
  std::string frame = encode_frame(FrameKind::kSet, std::string(100, 'x'));
  EXPECT_THAT(complaint(frame.substr(0, kFrameHeaderSize), 99),
              AllOf(HasSubstr("100 bytes"), HasSubstr("at most 99")));
  EXPECT_EQ(complaint(frame, 100), "");
  frame[11] = '\x7f';
  EXPECT_THAT(complaint(frame), HasSubstr("expected at most 67108864"));
  frame[4] = 9;
  EXPECT_THAT(complaint(frame), AllOf(HasSubstr("version 9"), HasSubstr("this one has version 2")));
  EXPECT_THROW(encode_frame(FrameKind::kSet, std::string(kLargestPayload + 1, 'x')), CommError);
}

TEST(Frame, FieldsComeBackInTheirOrder) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  const std::string payload =
      FieldWriter().integer(kLowest).text("").text(std::string("\0\xff", 2)).integer(7).payload();
  FieldReader fields(payload);
  EXPECT_EQ(fields.integer(), kLowest);
  EXPECT_EQ(fields.text(), "");
  EXPECT_EQ(fields.text(), std::string("\0\xff", 2));
  EXPECT_EQ(fields.integer(), 7);
  EXPECT_THROW(fields.integer(), CommError);
}

TEST(Frame, ALengthThatLiesIsFound) {
  for (const std::int64_t length : {std::int64_t{4}, std::int64_t{-1}}) {
    const std::string payload = FieldWriter().integer(length).payload() + "abc";
    EXPECT_THROW(FieldReader(payload).text(), CommError);
  }
}

}  // namespace
}  // namespace lockstep::rendezvous
