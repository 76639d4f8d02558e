#include "lockstep/rendezvous/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;

const Clock::time_point kNow = Clock::now();

TEST(Roster, EachRankJoinsOnce) {
  Roster roster(2);
  EXPECT_THAT(roster.join({.rank = 0, .world_size = 3}, kNow),
              Optional(std::string("expected world size 2, got 3")));
  EXPECT_THAT(roster.join({.rank = 2, .world_size = 2}, kNow),
              Optional(std::string("expected a rank from 0 to 1, got 2")));
  EXPECT_EQ(roster.present(), 0);
  const Roster::Applicant one{.rank = 1, .world_size = 2, .address = "10.0.0.2", .process = "p"};
  EXPECT_FALSE(roster.knows(one));
  EXPECT_EQ(roster.join(one, kNow), std::nullopt);
  EXPECT_TRUE(roster.knows(one));
  EXPECT_FALSE(roster.knows({.rank = 1, .world_size = 2, .process = "q"}));
  EXPECT_TRUE(roster.is_present(1) && roster.has_joined(1));
  EXPECT_FALSE(roster.is_present(0) || roster.has_joined(7));
  EXPECT_THAT(
      roster.join({.rank = 1, .world_size = 2, .address = "10.0.0.3"}, kNow),
      Optional(std::string("rank 1 has already joined from 10.0.0.2, and this process comes from "
                           "10.0.0.3: every process needs a rank of its own")));
  EXPECT_EQ(roster.present(), 1);
}

TEST(Roster, TheFirstFailureIsKept) {
  Roster roster(3);
  for (int rank = 0; rank < 3; ++rank) roster.join({.rank = rank, .world_size = 3}, kNow);
  roster.leave(0);
  EXPECT_FALSE(roster.fail(0, "closed")) << "a rank that has left cannot fail";
  EXPECT_TRUE(roster.fail(2, "out of memory"));
  EXPECT_FALSE(roster.fail(2, "closed"));
  EXPECT_TRUE(roster.fail(1, "rank 2 is gone"));
  EXPECT_EQ(roster.present(), 0);

  const RosterView view = roster.view(kNow);
  EXPECT_EQ(to_string(view.failure.value()), "rank 2 failed: out of memory");
  EXPECT_TRUE(view.peers[0].left && !view.peers[0].failed);
  EXPECT_EQ(view.peers[1].reason, "rank 2 is gone");
}

TEST(Roster, SilenceCountsWhileARankShouldBeHeard) {
  Roster roster(3);
  roster.join({.rank = 0, .world_size = 3}, kNow);
  roster.join({.rank = 1, .world_size = 3}, kNow);
  roster.heard_of(0, kNow + 3s);
  roster.leave(1);
  const RosterView view = roster.view(kNow + 5s);
  EXPECT_EQ(view.peers[0].silent, 2s);
  EXPECT_EQ(view.peers[1].silent, 0s);
  EXPECT_EQ(view.peers[2].silent, 0s);
}

TEST(Roster, AViewTravelsWhole) {
  Roster roster(2);
  roster.join({.rank = 1, .world_size = 2}, kNow);
  roster.set_status(1, std::string(2 * kLongestStatus, 's'));
  EXPECT_FALSE(RosterView::decode(roster.view(kNow).encode()).failure);
  roster.fail(1, "why");
  const RosterView view = RosterView::decode(roster.view(kNow).encode());
  ASSERT_EQ(view.peers.size(), 2u);
  EXPECT_FALSE(view.peers[0].joined);
  EXPECT_TRUE(view.peers[1].joined && view.peers[1].failed && !view.peers[1].left);
  EXPECT_EQ(view.peers[1].status, std::string(kLongestStatus, 's'));
  EXPECT_EQ(view.failure->rank, 1);
  EXPECT_EQ(view.failure->reason, "why");
  EXPECT_THROW(RosterView::decode(view.encode().substr(0, 40)), CommError);
}

}  // namespace
}  // namespace lockstep::rendezvous
