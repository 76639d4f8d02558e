#include "lockstep/rendezvous/frame_channel.h"

#include <gtest/gtest.h>

#include "tests/rendezvous/socket_pair.h"
#include "tests/support/rank_process.h"

namespace lockstep::rendezvous {
namespace {

TEST(FrameChannel, CarriesFramesBothWays) {
  auto [left, right] = socket_pair();
  FrameChannel a(std::move(left)), b(std::move(right));
  a.send(FrameKind::kSet, "x");
  b.send(FrameKind::kAnswer, "y");
  EXPECT_TRUE(a.receive());
  EXPECT_TRUE(b.receive());
  EXPECT_EQ(a.next()->payload, "y");
  EXPECT_EQ(b.next()->payload, "x");
  EXPECT_TRUE(a.receive()) << "nothing to read is not the end of the connection";
}

TEST(FrameChannel, KeepsWhatThePeerDoesNotTakeYet) {
  auto [left, right] = socket_pair();
  FrameChannel a(std::move(left)), b(std::move(right));
  const std::string large(8 << 20, 'x');
  a.send(FrameKind::kSet, large);
  EXPECT_TRUE(a.has_output());
  std::optional<Frame> frame;
  ASSERT_TRUE(eventually([&] {
    a.flush();
    return b.receive() && (frame = b.next()).has_value();
  }));
  EXPECT_EQ(frame->payload, large);
  EXPECT_FALSE(a.has_output());
}

TEST(FrameChannel, FramesBeforeTheEndAreNotLost) {
  auto [left, right] = socket_pair();
  FrameChannel b(std::move(right));
  FrameChannel(std::move(left)).send(FrameKind::kSet, "last");
  EXPECT_TRUE(b.receive());
  EXPECT_FALSE(b.receive());
  EXPECT_EQ(b.next()->payload, "last");
  b.send(FrameKind::kSet, "the peer is gone: no signal, no error");
  EXPECT_FALSE(b.has_output());
}

}  // namespace
}  // namespace lockstep::rendezvous
