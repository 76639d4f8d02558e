#include "lockstep/log/proto_reader.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/log/proto.h"

namespace lockstep {
namespace {

TEST(ProtoReader, ReadsWhatIsWritten) {
  ProtoMessage message;
  message.integer(1, -5).float32(2, 0.5F).float64(300, -0.25).bytes(4, "text");
  ProtoReader reader(message.encoded());
  const auto integer = reader.next();
  ASSERT_TRUE(integer);
  EXPECT_EQ(integer->number, 1);
  EXPECT_EQ(integer->integer(), -5);
  EXPECT_EQ(reader.next()->float32(), 0.5F);
  const auto number = reader.next();
  EXPECT_EQ(number->number, 300);
  EXPECT_EQ(number->float64(), -0.25);
  const auto text = reader.next();
  EXPECT_TRUE(text->is_bytes);
  EXPECT_EQ(text->bytes, "text");
  EXPECT_FALSE(reader.next());
}

TEST(ProtoReader, DamagedMessagesAreRefused) {
  const auto read_all = [](std::string_view bytes) {
    ProtoReader reader(bytes);
    while (reader.next()) {
    }
  };
  const std::string whole = ProtoMessage().bytes(4, "text").encoded();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(read_all(std::string_view(whole).substr(0, size)), DataError) << size;
  }
  EXPECT_THROW(read_all("\x0b"), DataError);  // wire type 3
  EXPECT_THROW(read_all(std::string(1, '\x08') + std::string(11, '\xff')), DataError);
}

TEST(ProtoReader, ReadsTheFieldsThatAreComplete) {
  ProtoMessage message;
  message.integer(1, -2).float32(2, 1.0f).float64(30, 1.0).bytes(4, "testing");
  const std::string encoded = message.encoded();
  const auto fields = read_proto(encoded);
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(fields[0].number, 1);
  EXPECT_EQ(fields[0].integer(), -2);
  EXPECT_EQ(fields[1].raw, 0x3f800000u);
  EXPECT_EQ(fields[2].number, 30);
  EXPECT_EQ(fields[2].raw, 0x3ff0000000000000u);
  EXPECT_EQ(fields[3].bytes, "testing");
  // A part of it has the fields that are complete.
  for (std::size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_LT(read_proto(std::string_view(encoded).substr(0, size)).size(), 4u) << size;
  }
  EXPECT_TRUE(read_proto("\x0b").empty()) << "a type that is not used any more";
  EXPECT_TRUE(read_proto("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x").empty());
}

}  // namespace
}  // namespace lockstep
