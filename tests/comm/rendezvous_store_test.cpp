#include "lockstep/comm/rendezvous_store.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/rendezvous_server.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

class RendezvousStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<rendezvous::Rendezvous> join(int rank) {
    return std::make_shared<rendezvous::Rendezvous>(
        rendezvous::RendezvousOptions{.port = server_.port(),
                                      .token = "secret",
                                      .rank = rank,
                                      .world_size = 2,
                                      .timeout = kLimit});
  }

  rendezvous::RendezvousServer server_{{.token = "secret", .world_size = 2}};
  std::shared_ptr<rendezvous::Rendezvous> rank0_ = join(0);
  std::shared_ptr<rendezvous::Rendezvous> rank1_ = join(1);
  RendezvousStore a_{rank0_, "group/", kLimit};
  RendezvousStore b_{rank1_, "group/", kLimit};
};

TEST_F(RendezvousStoreTest, ACloneHasTheSameKeys) {
  a_.set("key", Bytes{7});
  EXPECT_THAT(b_.clone()->get("key"), ElementsAre(7));
}

TEST_F(RendezvousStoreTest, BytesOfOneRankReachTheOther) {
  a_.set("key", Bytes{0, 1, 255, 10});
  EXPECT_THAT(b_.get("key"), ElementsAre(0, 1, 255, 10));
  EXPECT_TRUE(b_.check({"key"}));
  EXPECT_FALSE(b_.check({"key", "other"}));
  EXPECT_TRUE(b_.deleteKey("key"));
  EXPECT_FALSE(a_.deleteKey("key"));
  a_.set("empty", Bytes{});
  EXPECT_TRUE(b_.get("empty").empty());
}

TEST_F(RendezvousStoreTest, GetAndWaitWaitForTheKey) {
  std::thread setter([&] {
    a_.set("first", Bytes{1});
    a_.set("second", Bytes{2});
  });
  EXPECT_THAT(b_.get("second"), ElementsAre(2));
  b_.wait({"first", "second"});
  setter.join();
}

TEST_F(RendezvousStoreTest, AKeyThatNoRankSetsIsNamedAfterTheTimeLimit) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<CommError>([&] {
                b_.wait({"one", "two"}, 300ms);
              }),
              HasSubstr("group/one"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(1s));
}

TEST_F(RendezvousStoreTest, ALongerLimitThanItsOwnDoesNotCount) {
  RendezvousStore store(rank0_, "group/", 300ms);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<CommError>([&] { store.wait({"one"}, 1h); }), HasSubstr("group/one"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(1s));
}

TEST_F(RendezvousStoreTest, AddCounts) {
  EXPECT_EQ(a_.add("counter", 2), 2);
  EXPECT_EQ(b_.add("counter", 3), 5);
  EXPECT_EQ(b_.add("counter", 0), 5);
  EXPECT_EQ(b_.getNumKeys(), 1);
}

TEST_F(RendezvousStoreTest, PrefixesKeepGroupsApart) {
  RendezvousStore other(rank1_, "another/", kLimit);
  a_.set("key", Bytes{1});
  EXPECT_FALSE(other.check({"key"}));
  other.set("key", Bytes{2});
  EXPECT_THAT(a_.get("key"), ElementsAre(1));
}

TEST_F(RendezvousStoreTest, AFailureEndsAWait) {
  std::thread failing([&] { rank0_->fail("no memory"); });
  EXPECT_THAT(message_of<CommError>([&] { b_.get("key"); }), HasSubstr("no memory"));
  failing.join();
}

}  // namespace
}  // namespace lockstep::comm
