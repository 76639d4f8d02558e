#include "lockstep/launcher/nodes.h"

#include <csignal>
#include <functional>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/rank_process.h"

namespace lockstep::launcher {
namespace {

using testing::HasSubstr;

int free_port() {
  return rendezvous::local_port(rendezvous::listen_on({}));
}

NodesOptions node(int rank, int port) {
  return {.nodes = 2,
          .node_rank = rank,
          .endpoint = {.address = "127.0.0.1", .port = port},
          .token = "secret",
          .timeout = std::chrono::seconds(10)};
}

// Runs node 0's part in this thread and node 1's part in another one.
void run_nodes(const std::function<void(Nodes&)>& first,
               const std::function<void(Nodes&)>& second) {
  const int port = free_port();
  auto other = std::async(std::launch::async, [&] {
    Nodes nodes(node(1, port));
    second(nodes);
  });
  {
    Nodes nodes(node(0, port));
    first(nodes);
  }
  other.get();
}

bool is_readable(int fd, int milliseconds) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, milliseconds) == 1;
}

TEST(Nodes, KnowWhetherTheOthersHaveEnded) {
  run_nodes(
      [&](Nodes& nodes) {
        nodes.meet(0, 1);
        EXPECT_TRUE(eventually([&] { return nodes.others_ended(0); }));
        EXPECT_FALSE(nodes.others_ended(1)) << "an attempt that has not begun";
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
        nodes.meet(1, 1);
        EXPECT_FALSE(nodes.others_ended(1));
        EXPECT_TRUE(nodes.conclude(1, std::nullopt));
        EXPECT_FALSE(nodes.others_ended(1)) << "not well";
      },
      [&](Nodes& nodes) {
        nodes.meet(0, 1);
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
        nodes.meet(1, 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_TRUE(nodes.conclude(1, AttemptFailure{.rank = 1, .how = "boom"}));
      });
}

TEST(Nodes, AgreeOnRanksAndAPlaceToMeet) {
  AttemptSettings first, second;
  run_nodes(
      [&](Nodes& nodes) {
        first = nodes.meet(0, 3);
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
      },
      [&](Nodes& nodes) {
        second = nodes.meet(0, 2);
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
      });
  EXPECT_EQ(first.first_rank, 0);
  EXPECT_EQ(second.first_rank, 3);
  EXPECT_EQ(first.world_size, 5);
  EXPECT_EQ(second.world_size, 5);
  EXPECT_EQ(first.run_id, second.run_id);
  EXPECT_EQ(first.run_id.size(), 16u);
  EXPECT_EQ(first.master.port, second.master.port);
  EXPECT_EQ(first.token, second.token);
  EXPECT_EQ(first.token.size(), 64u) << "the token of the ranks, not of the launchers";
}

TEST(Nodes, AFailureOnOneIsKnownOnTheOther) {
  const AttemptFailure failure{.rank = 4, .shell_code = 7, .how = "exit code 7"};
  run_nodes(
      [&](Nodes& nodes) {
        nodes.meet(0, 2);
        EXPECT_TRUE(is_readable(nodes.failure_fd(), 5000));
        const auto concluded = nodes.conclude(0, std::nullopt);
        ASSERT_TRUE(concluded);
        EXPECT_EQ(concluded->rank, 4);
        EXPECT_EQ(concluded->shell_code, 7);
        EXPECT_EQ(concluded->how, "exit code 7");
        nodes.meet(1, 2);  // another attempt
        EXPECT_FALSE(is_readable(nodes.failure_fd(), 300));
        EXPECT_FALSE(nodes.conclude(1, std::nullopt));
      },
      [&](Nodes& nodes) {
        nodes.meet(0, 2);
        // Like a real launcher, it reports its failure and waits until the other nodes are done.
        EXPECT_EQ(nodes.conclude(0, failure)->rank, 4);
        nodes.meet(1, 2);
        EXPECT_FALSE(nodes.conclude(1, std::nullopt));
      });
}

TEST(Nodes, ALauncherThatIsGoneIsAFailure) {
  const int port = free_port();
  auto other = std::async(std::launch::async, [&] {
    // Joins, sends its number of ranks and then fails, like a launcher that was killed.
    rendezvous::Rendezvous rendezvous(
        {.address = "127.0.0.1", .port = port, .token = "secret", .rank = 1, .world_size = 2});
    rendezvous.set("ranks/0/1", "2");
    rendezvous.get("port/0");
    rendezvous.fail("killed");
  });
  Nodes nodes(node(0, port));
  nodes.meet(0, 2);
  EXPECT_TRUE(is_readable(nodes.failure_fd(), 5000));
  const auto failure = nodes.conclude(0, std::nullopt);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->how, HasSubstr("the launcher of node 1 is gone"));
  EXPECT_LT(failure->rank, 0);
  other.get();
}

// Rank 3 was killed. Rank 0, on the other node, only lost it, but its launcher was quicker.
TEST(Nodes, ARankThatIsCertainlyToBlameComesBeforeTheFirstOne) {
  const AttemptFailure lost{
      .rank = 0, .shell_code = 1, .blame = Blame::kLikely, .how = "exit code 1"};
  const AttemptFailure killed{.rank = 3,
                              .kind = process::FailureKind::kOutOfMemory,
                              .epoch = 2,
                              .batch = 5,
                              .shell_code = 137,
                              .how = "not enough memory"};
  run_nodes(
      [&](Nodes& nodes) {
        nodes.meet(0, 2);
        EXPECT_EQ(nodes.conclude(0, lost)->rank, 3);
      },
      [&](Nodes& nodes) {
        nodes.meet(0, 2);
        EXPECT_TRUE(is_readable(nodes.failure_fd(), 5000));
        const auto cause = nodes.conclude(0, killed);
        ASSERT_TRUE(cause);
        EXPECT_EQ(cause->rank, 3);
        EXPECT_EQ(cause->kind, process::FailureKind::kOutOfMemory);
        EXPECT_EQ(cause->epoch, 2);
        EXPECT_EQ(cause->batch, 5);
        EXPECT_EQ(cause->shell_code, 137);
        EXPECT_EQ(cause->how, "not enough memory");
      });
}

// A host that lost its network sends nothing, and the kernel notices it only after 30 s.
TEST(Nodes, ASilentLauncherIsAFailure) {
  const int port = free_port();
  RankProcess other([&] {
    Nodes nodes(node(1, port));
    nodes.meet(0, 2);
    ::kill(::getpid(), SIGSTOP);
    return 0;
  });
  NodesOptions options = node(0, port);
  options.silence = std::chrono::seconds(1);
  Nodes nodes(options);
  nodes.meet(0, 2);
  EXPECT_TRUE(is_readable(nodes.failure_fd(), 10'000));
  const auto failure = nodes.conclude(0, std::nullopt);
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->how, HasSubstr("the launcher of node 1 is gone: it has sent nothing for"));
}

TEST(Nodes, AnotherRunsTokenIsTurnedAway) {
  const int port = free_port();
  rendezvous::RendezvousServer server(
      {.address = "127.0.0.1", .port = port, .token = "ours", .world_size = 2});
  EXPECT_THROW(Nodes(node(1, port)), CommError);
}

// After the launcher has chosen the port, no other process gets it before the program listens
// there.
TEST(Nodes, ThePortOfTheProgramsIsHeldForThem) {
  run_nodes(
      [&](Nodes& nodes) {
        const int port = nodes.meet(0, 1).master.port;
        for (int i = 0; i < 100; ++i) EXPECT_NE(free_port(), port);
        EXPECT_NO_THROW(rendezvous::listen_on({.address = "127.0.0.1", .port = port}));
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
      },
      [&](Nodes& nodes) {
        nodes.meet(0, 1);
        EXPECT_FALSE(nodes.conclude(0, std::nullopt));
      });
}

TEST(Nodes, RunIdsDiffer) {
  EXPECT_NE(random_run_id(), random_run_id());
}

}  // namespace
}  // namespace lockstep::launcher
