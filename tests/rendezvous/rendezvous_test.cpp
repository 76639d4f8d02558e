#include "lockstep/rendezvous/rendezvous.h"

#include <array>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/rendezvous_server.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

RendezvousOptions rank_at(int port, int rank, int world_size) {
  return {
      .port = port, .token = "secret", .rank = rank, .world_size = world_size, .timeout = kLimit};
}

// Rank 0 and the server are in this process. The other ranks are processes that run `body`.
class Ranks {
 public:
  Ranks(int world_size, const std::function<int(Rendezvous&)>& body) {
    for (int rank = 1; rank < world_size; ++rank) {
      others_.emplace_back([=, this] {
        Rendezvous rendezvous(rank_at(ports_.take(), rank, world_size));
        return body(rendezvous);
      });
    }
    server_.emplace(ServerOptions{.token = "secret", .world_size = world_size});
    for (int rank = 1; rank < world_size; ++rank) ports_.put(server_->port());
    rank0_.emplace(rank_at(server_->port(), 0, world_size));
  }

  Rendezvous& rank0() { return *rank0_; }
  RankProcess& other(int rank) { return others_.at(static_cast<std::size_t>(rank) - 1); }

  void expect_all_end_well() {
    for (RankProcess& other : others_) EXPECT_EQ(other.wait(), 0);
  }

 private:
  NumberPipe ports_;
  std::vector<RankProcess> others_;
  std::optional<RendezvousServer> server_;
  std::optional<Rendezvous> rank0_;
};

// A server and its ranks in one process, for tests that need no other process.
struct Pair {
  RendezvousServer server{{.token = "secret", .world_size = 2}};
  Rendezvous a{rank_at(server.port(), 0, 2)};
  Rendezvous b{rank_at(server.port(), 1, 2)};
};

std::string key_of(int rank) {
  return "rank/" + std::to_string(rank);
}

TEST(Rendezvous, FourProcessesExchangeValues) {
  const auto body = [](Rendezvous& rendezvous) {
    const int own = rendezvous.options().rank;
    rendezvous.set(key_of(own), "value of " + std::to_string(own));
    for (int rank = 0; rank < 4; ++rank) {
      if (rendezvous.get(key_of(rank)) != "value of " + std::to_string(rank)) return 1;
    }
    // No rank leaves before all ranks have read all values.
    if (rendezvous.add("done", 1) == 4) rendezvous.set("all done", "");
    rendezvous.get("all done");
    return 0;
  };
  Ranks run(4, body);
  EXPECT_EQ(body(run.rank0()), 0);
  run.expect_all_end_well();
  EXPECT_EQ(run.rank0().get("done"), "4");
  EXPECT_EQ(run.rank0().num_keys(), 6);
  EXPECT_FALSE(run.rank0().failure());
}

TEST(Rendezvous, HasWhatAStoreNeeds) {
  Pair ranks;
  const std::string bytes("\0\xff\n", 3);
  ranks.a.set("a", bytes);
  EXPECT_EQ(ranks.b.get("a"), bytes);
  EXPECT_EQ(ranks.b.try_get("b"), std::nullopt);
  EXPECT_EQ(ranks.a.add("n", 5), 5);
  EXPECT_EQ(ranks.b.add("n", -7), -2);
  EXPECT_EQ(ranks.a.get("n"), "-2");
  EXPECT_THAT(message_of<CommError>([&] { ranks.a.add("a", 1); }), HasSubstr("key 'a'"));
  EXPECT_TRUE(ranks.a.check(std::array<std::string, 2>{"a", "n"}));
  EXPECT_FALSE(ranks.a.check(std::array<std::string, 2>{"a", "b"}));
  EXPECT_NO_THROW(ranks.a.wait(std::array<std::string, 2>{"a", "n"}, kLimit));
  EXPECT_THAT(message_of<CommError>([&] {
                ranks.a.wait(std::array<std::string, 2>{"a", "b"}, 10ms);
              }),
              HasSubstr("key 'b'"));
  EXPECT_EQ(ranks.b.num_keys(), 2);
  EXPECT_TRUE(ranks.b.erase("a"));
  EXPECT_FALSE(ranks.a.erase("a"));
  EXPECT_EQ(ranks.b.num_keys(), 1);
}

TEST(Rendezvous, GetWaitsForALaterSetAndHoldsUpNoThread) {
  Pair ranks;
  auto waits = std::async(std::launch::async, [&] { return ranks.b.get("later"); });
  for (int i = 0; i < 100; ++i) ranks.b.set("now", std::to_string(i));
  EXPECT_EQ(ranks.b.get("now"), "99");
  EXPECT_NE(waits.wait_for(0ms), std::future_status::ready);
  ranks.b.set("later", "here");
  EXPECT_EQ(waits.get(), "here");
}

TEST(Rendezvous, ManyThreadsShareOne) {
  Pair ranks;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&ranks, t] {
      Rendezvous& rank = t % 2 == 0 ? ranks.a : ranks.b;
      for (int i = 0; i < 50; ++i) {
        const std::string key = fmt::format("{}/{}", t, i);
        rank.set(key, key);
        rank.set_status(key);
        rank.add("count", 1);
        EXPECT_EQ(rank.get(fmt::format("{}/{}", (t + 1) % 8, i)),
                  fmt::format("{}/{}", (t + 1) % 8, i));
        EXPECT_EQ(rank.peers().size(), 2u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ranks.a.get("count"), "400");
}

TEST(Rendezvous, LargeValuesPassAndTooLargeOnesAreNamed) {
  Pair ranks;
  const std::string large(60 << 20, 'x');
  ranks.a.set("large", large);
  EXPECT_TRUE(ranks.b.get("large") == large);
  EXPECT_THAT(message_of<CommError>([&] { ranks.a.set("huge", std::string(64 << 20, 'x')); }),
              AllOf(HasSubstr("key 'huge'"), HasSubstr("at most 64.0 MiB")));
  EXPECT_FALSE(ranks.a.try_get("huge"));
  EXPECT_FALSE(ranks.b.failure());
}

TEST(Rendezvous, ATimeoutNamesTheKeyAndTheTime) {
  Pair ranks;
  const auto start = Clock::now();
  EXPECT_EQ(message_of<CommError>([&] { ranks.b.get("never", 200ms); }),
            fmt::format("rendezvous at 127.0.0.1:{}: rank 1 waited for key 'never': "
                        "it was not set in 0.2 s",
                        ranks.server.port()));
  EXPECT_GE(Clock::now() - start, 200ms);
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(Rendezvous, ARankThatIsTurnedAwayDoesNotDisturbTheRun) {
  Pair ranks;
  EXPECT_THAT(message_of<CommError>([&] { Rendezvous again(rank_at(ranks.server.port(), 1, 2)); }),
              HasSubstr("turned away: rank 1 has already joined"));
  ranks.a.set("k", "v");
  EXPECT_EQ(ranks.b.get("k"), "v");
  EXPECT_FALSE(ranks.a.failure());
}

TEST(Rendezvous, StatusReachesTheOthers) {
  Pair ranks;
  ranks.b.set_status("epoch 1, batch 7");
  const auto start = Clock::now();
  EXPECT_TRUE(eventually([&] { return ranks.a.peers()[1].status == "epoch 1, batch 7"; }));
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_TRUE(ranks.a.peers()[1].joined);
}

TEST(Rendezvous, AnOrderlyLeaveIsNoFailure) {
  Ranks run(3, [](Rendezvous& rendezvous) {
    rendezvous.get("go");
    if (rendezvous.options().rank == 1) rendezvous.leave();
    return 0;  // rank 2 leaves with its destructor
  });
  run.rank0().set("go", "");
  run.expect_all_end_well();
  ASSERT_TRUE(eventually([&] {
    const auto peers = run.rank0().peers();
    return peers[1].left && peers[2].left;
  }));
  EXPECT_FALSE(run.rank0().failure());
  run.rank0().leave();
  EXPECT_THAT(message_of<CommError>([&] { run.rank0().set("k", "v"); }),
              HasSubstr("rank 0 has left"));
  run.rank0().leave();
  run.rank0().fail("too late to matter");
}

TEST(Rendezvous, AKilledProcessIsAFailureKnownToAll) {
  Ranks run(4, [](Rendezvous& rendezvous) {
    rendezvous.add("ready", 1);
    // get() returns early, because of the failure.
    const std::string message = message_of<CommError>([&] { rendezvous.get("never"); });
    const auto failure = rendezvous.failure();
    if (!failure || failure->rank != 2) return 1;
    return message.find("key 'never'") != message.npos && message.find("rank 2") != message.npos
               ? 0
               : 2;
  });
  ASSERT_TRUE(eventually([&] { return run.rank0().add("ready", 0) == 3; }));
  const auto start = Clock::now();
  run.other(2).send(SIGKILL);
  EXPECT_THAT(message_of<CommError>([&] { run.rank0().get("never"); }),
              HasSubstr("'never': rank 2 failed: its connection to the rendezvous broke"));
  EXPECT_EQ(run.other(1).wait(), 0);
  EXPECT_EQ(run.other(3).wait(), 0);
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_TRUE(run.rank0().peers()[2].failed);
  // A key that is set can still be read.
  EXPECT_EQ(run.rank0().get("ready"), "3");
}

TEST(Rendezvous, AStoppedProcessFallsSilentAndIsHeardAgain) {
  Ranks run(2, [](Rendezvous& rendezvous) {
    rendezvous.set("ready", "");
    rendezvous.get("end");
    return 0;
  });
  const auto silent = [&] { return run.rank0().peers()[1].silent; };
  run.rank0().get("ready");
  run.other(1).send(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return silent() > 500ms; }));
  const auto before = silent();
  ASSERT_TRUE(eventually([&] { return silent() > before + 300ms; }));
  EXPECT_LT(run.rank0().peers()[0].silent, scaled(500ms));
  EXPECT_FALSE(run.rank0().failure());
  run.other(1).send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return silent() < 500ms; }));
  run.rank0().set("end", "");
  run.expect_all_end_well();
}

TEST(Rendezvous, AReportedFailureReachesTheOthers) {
  Ranks run(3, [](Rendezvous& rendezvous) {
    if (rendezvous.options().rank == 1) {
      rendezvous.get("go");
      rendezvous.fail("loss is not a number at step 3");
      return 0;
    }
    rendezvous.set("ready", "");
    EXPECT_THROW(rendezvous.get("never"), CommError);
    return rendezvous.failure()->reason == "loss is not a number at step 3" ? 0 : 1;
  });
  run.rank0().get("ready");
  run.rank0().set("go", "");
  EXPECT_THAT(message_of<CommError>([&] { run.rank0().get("never"); }),
              HasSubstr("rank 1 failed: loss is not a number at step 3"));
  run.expect_all_end_well();
  EXPECT_EQ(run.rank0().failure()->rank, 1) << "the first failure, whichever rank ends next";
}

// This process is rank 1 of 2. Rank 0 and the server are in another process, which calls `end` when
// rank 1 sets the key "go".
void expect_failure_of_rank0(const std::function<void(Rendezvous&)>& end, const char* reason) {
  NumberPipe ports;
  RankProcess rank0([&] {
    const RendezvousServer server({.token = "secret", .world_size = 2});
    ports.put(server.port());
    Rendezvous rendezvous(rank_at(server.port(), 0, 2));
    rendezvous.get("go");
    end(rendezvous);
    return 0;
  });
  Rendezvous rank1(rank_at(ports.take(), 1, 2));
  const auto start = Clock::now();
  rank1.set("go", "");
  EXPECT_THROW(rank1.get("never"), CommError);
  EXPECT_LT(Clock::now() - start, scaled(1s));
  ASSERT_TRUE(rank1.failure());
  EXPECT_EQ(rank1.failure()->rank, 0);
  EXPECT_THAT(rank1.failure()->reason, HasSubstr(reason));
  rank1.fail("rank 0 is gone");
  EXPECT_EQ(rank1.failure()->rank, 0);
}

TEST(Rendezvous, TheEndOfTheServersProcessIsAFailureOfRank0) {
  expect_failure_of_rank0([](Rendezvous&) { ::raise(SIGKILL); }, "killed");
}

TEST(Rendezvous, TheLastWordsOfRank0ArriveThoughTheServerEndsWithIt) {
  for (int i = 0; i < 20; ++i) {
    expect_failure_of_rank0(
        [](Rendezvous& rendezvous) {
          rendezvous.fail("disk full");
          ::_exit(1);
        },
        "disk full");
  }
}

TEST(Rendezvous, AStoppedServerIsASilentRank0AndFailTakesASecond) {
  NumberPipe ports;
  RankProcess rank0([&] {
    const RendezvousServer server({.token = "secret", .world_size = 2});
    ports.put(server.port());
    Rendezvous rendezvous(rank_at(server.port(), 0, 2));
    rendezvous.set("ready", "");
    rendezvous.get("never");
    return 0;
  });
  Rendezvous rank1(rank_at(ports.take(), 1, 2));
  rank1.get("ready");
  rank0.send(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return rank1.peers()[0].silent > 600ms; }));
  EXPECT_LT(rank1.peers()[1].silent, scaled(500ms));
  const auto start = Clock::now();
  rank1.fail("why");
  EXPECT_LT(Clock::now() - start, scaled(3s));
  EXPECT_EQ(rank1.failure()->rank, 1);
  rank1.leave();
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(Rendezvous, AServerThatIsGoneEndsTheWaits) {
  Pair other_run;
  {
    auto doomed =
        std::make_unique<RendezvousServer>(ServerOptions{.token = "secret", .world_size = 1});
    Rendezvous a(rank_at(doomed->port(), 0, 1));
    auto waits = std::async(std::launch::async,
                            [&] { return message_of<CommError>([&] { a.get("never"); }); });
    a.set("k", "v");
    const auto start = Clock::now();
    doomed.reset();
    EXPECT_THAT(waits.get(), HasSubstr("gone"));
    EXPECT_LT(Clock::now() - start, scaled(1s));
  }
  EXPECT_FALSE(other_run.b.failure());
}

}  // namespace
}  // namespace lockstep::rendezvous
