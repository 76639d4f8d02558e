#include "lockstep/process/team.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/process.h"
#include "tests/support/no_pidfd.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Ranks that were started apart: nobody supervises them.
class Strangers {
 public:
  Strangers(const RanksOptions& options, const std::function<int(Team&)>& body)
      : memory_(std::make_shared<TeamMemory>(options.size)) {
    for (int rank = 1; rank < options.size; ++rank) {
      others_.emplace_back([=, this] {
        Team team(memory_, {.rank = rank, .timeout = options.timeout});
        team.join();
        return body(team);
      });
    }
    team_.emplace(memory_, TeamOptions{.rank = 0, .timeout = options.timeout});
    team_->join();
  }

  Team& team() { return *team_; }
  RankProcess& other(int rank) { return others_.at(static_cast<std::size_t>(rank) - 1); }

 private:
  std::shared_ptr<TeamMemory> memory_;
  std::vector<RankProcess> others_;
  std::optional<Team> team_;
};

class Sizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Team, Sizes, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(Sizes, EveryMeetingShowsTheWordsOfAll) {
  const auto start = Clock::now();
  run_ranks(GetParam(), [](Team& team) {
    for (std::uint64_t round = 0; round < 2000; ++round) {
      team.meet({.operation = Operation::kVote,
                 .word = round * 100 + static_cast<std::uint64_t>(team.rank())});
      for (int rank = 0; rank < team.size(); ++rank) {
        ASSERT_EQ(team.word(rank), round * 100 + static_cast<std::uint64_t>(rank));
      }
    }
  });
  EXPECT_LT(Clock::now() - start, scaled(10s));
}

// Whoever is ahead writes what others have still to read, if anything is wrong with the turns.
TEST_P(Sizes, TwoSlotsInTurnsNeedOneMeetingAnExchange) {
  run_ranks(GetParam(), [](Team& team) {
    std::minstd_rand random(static_cast<unsigned>(team.rank()) + 1);
    for (std::uint64_t round = 0; round < 1000; ++round) {
      const int turn = static_cast<int>(round & 1);
      const auto pattern = [&](int rank) { return round * 16 + static_cast<std::uint64_t>(rank); };
      auto* own = reinterpret_cast<std::uint64_t*>(team.slot(team.rank(), turn));
      std::fill(own, own + 64, pattern(team.rank()));
      if (random() % 16 == 0) std::this_thread::yield();
      team.meet({.operation = Operation::kGather});
      for (int rank = 0; rank < team.size(); ++rank) {
        const auto* others = reinterpret_cast<const std::uint64_t*>(team.slot(rank, turn));
        for (int i = 0; i < 64; ++i) ASSERT_EQ(others[i], pattern(rank)) << "round " << round;
      }
    }
  });
}

TEST(Team, SlotsDoNotOverlap) {
  const auto memory = std::make_shared<TeamMemory>(3);
  const Team team(memory, {});
  for (int turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < 3; ++rank) {
      std::memset(team.slot(rank, turn), 1 + 2 * rank + turn, Team::kSlotBytes);
    }
    std::memset(team.results(turn), 7 + turn, Team::kSlotBytes);
  }
  for (int turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(std::to_integer<int>(team.slot(rank, turn)[0]), 1 + 2 * rank + turn);
      EXPECT_EQ(std::to_integer<int>(team.slot(rank, turn)[Team::kSlotBytes - 1]),
                1 + 2 * rank + turn);
    }
    EXPECT_EQ(std::to_integer<int>(team.results(turn)[Team::kSlotBytes - 1]), 7 + turn);
  }
  EXPECT_EQ(team.state(1), SeatState::kEmpty);
  EXPECT_FALSE(team.failure());
  EXPECT_EQ(memory->memory.data() + memory->memory.size(), team.results(1) + Team::kSlotBytes);
}

TEST(Team, ARankThatIsNotOfItIsRefused) {
  const auto memory = std::make_shared<TeamMemory>(2);
  EXPECT_THAT(message_of<CommError>([&] { Team(memory, {.rank = 2}); }),
              HasSubstr("expected 0 to 1, got 2"));
}

TEST(Team, DifferentOperationsAreToldToAll) {
  const NumberPipe told;
  run_ranks(2, [&](Team& team) {
    team.set_progress(3, 7);
    const std::string text = message_of<CommError>([&] {
      if (team.rank() == 0) {
        team.meet({.operation = Operation::kAllReduce, .detail = 4000});
      } else {
        team.meet({.operation = Operation::kBroadcast, .detail = 8});
      }
    });
    if (team.rank() == 0) {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("rank 0 came for 'all_reduce of 4000 bytes'"),
                        HasSubstr("rank 1 (in epoch 3, batch 7) for 'broadcast of 8 bytes'")));
    } else {
      EXPECT_THAT(text, AllOf(HasSubstr("rank 1 came for 'broadcast of 8 bytes'"),
                              HasSubstr("rank 0 (in epoch 3, batch 7) for 'all_reduce of")));
    }
  });
}

TEST(Team, DifferentSizesAreTold) {
  run_ranks(2, [](Team& team) {
    EXPECT_THAT(
        message_of<CommError>([&] {
          team.meet({.operation = Operation::kAllReduce, .detail = team.rank() == 0 ? 40U : 44U});
        }),
        HasSubstr("all ranks must do the same"));
  });
}

TEST(Team, ARankThatNeverComesIsNamedWithinTheLimit) {
  Strangers run({.size = 4, .timeout = 500ms}, [](Team& team) {
    if (team.rank() == 2) return eventually([&] { return team.failure().has_value(); }) ? 0 : 1;
    const std::string text =
        message_of<Error>([&] { team.meet({.operation = Operation::kBarrier}); });
    return text.find("ranks 0, 1, 3 came, rank 2 did not") != std::string::npos ? 0 : 1;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] { run.team().meet({.operation = Operation::kBarrier}); }),
              AllOf(HasSubstr("rank 2"), HasSubstr("barrier: waited 0.5 s"),
                    HasSubstr("ranks 0, 1, 3 came, rank 2 did not")));
  EXPECT_GE(Clock::now() - start, 400ms);
  EXPECT_LT(Clock::now() - start, scaled(900ms));
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(run.other(rank).wait(), 0);
  // And nothing works after that.
  EXPECT_THROW(run.team().meet({}), WorkerError);
}

// The limit is the meeting's, not that of each rank one waits for.
TEST(Team, SeveralThatAreLateShareTheLimit) {
  Strangers run({.size = 3, .timeout = 600ms}, [](Team& team) {
    if (team.rank() == 1) {
      std::this_thread::sleep_for(400ms);  // to be late, not to be in step
      message_of<Error>([&] { team.meet({}); });
    } else {
      eventually([&] { return team.failure().has_value(); });
    }
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] { run.team().meet({}); }),
              HasSubstr("ranks 0, 1 came, rank 2 did not"));
  EXPECT_LT(Clock::now() - start, scaled(900ms));
}

TEST(Team, ARankThatWasKilledIsNoticedWithoutASupervisor) {
  for (const bool waits_already : {false, true}) {
    Strangers run({.size = 3, .timeout = kLimit}, [&](Team& team) {
      team.set_progress(2, 5);
      if (team.rank() == 1) return eventually([] { return false; }) ? 0 : 1;
      return message_of<WorkerError>([&] { team.meet({}); }).starts_with("rank 1") ? 0 : 1;
    });
    ASSERT_TRUE(eventually([&] { return run.team().state(1) == SeatState::kPresent; }));
    ASSERT_TRUE(eventually([&] { return run.team().progress(1) != ""; }));
    std::thread killer;
    if (waits_already) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(200ms);  // to be late, not to be in step
        run.other(1).send(SIGKILL);
      });
    } else {
      run.other(1).send(SIGKILL);
    }
    const auto start = Clock::now();
    EXPECT_EQ(message_of<WorkerError>([&] { run.team().meet({}); }),
              "rank 1 (in epoch 2, batch 5): its process ended without a word");
    EXPECT_LT(Clock::now() - start, scaled(2s));
    if (killer.joinable()) killer.join();
    EXPECT_EQ(run.other(2).wait(), 0);
  }
}

// Old kernels and old containers have no pidfds.
TEST(Team, ARankThatWasKilledIsNoticedWithoutAPidfd) {
  Strangers run({.size = 3, .timeout = kLimit}, [&](Team& team) {
    if (team.rank() == 1) return eventually([] { return false; }) ? 0 : 1;
    forbid_pidfd();
    if (open_pidfd(team.pid(0))) return 2;
    return message_of<WorkerError>([&] { team.meet({}); }).starts_with("rank 1") ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return run.team().state(1) == SeatState::kPresent; }));
  run.other(1).send(SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(run.other(2).wait(), 0);
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(Team, ARankThatLeftIsMissed) {
  Strangers run({.size = 2, .timeout = kLimit}, [](Team& team) {
    team.meet({});
    team.set_state(SeatState::kLeft);
    return eventually([&] { return team.failure().has_value(); }) ? 0 : 1;
  });
  run.team().meet({});
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { run.team().meet({}); }),
            "rank 1: left before the others were done");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_EQ(run.other(1).wait(), 0);
}

// It has come to the last meeting: nobody misses it there.
TEST(Team, ARankMayLeaveWhileOthersAreStillInTheLastMeeting) {
  for (int round = 0; round < 20; ++round) {
    Strangers run({.size = 3, .timeout = kLimit}, [](Team& team) {
      team.meet({});
      team.set_state(SeatState::kLeft);
      return 0;
    });
    run.team().meet({});
    EXPECT_EQ(run.other(1).wait(), 0);
    EXPECT_EQ(run.other(2).wait(), 0);
    EXPECT_FALSE(run.team().failure());
  }
}

TEST(Team, AFailureWakesThoseWhoWait) {
  Strangers run({.size = 3, .timeout = kLimit}, [](Team& team) {
    if (team.rank() == 1) {
      team.fail(1, "no memory");
      EXPECT_FALSE(team.fail(1, "another"));
      return 0;
    }
    return message_of<WorkerError>([&] { team.meet({}); }) == "rank 1: no memory" ? 0 : 1;
  });
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { run.team().meet({}); }), "rank 1: no memory");
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_EQ(run.other(1).wait(), 0);
  EXPECT_EQ(run.other(2).wait(), 0);
  ASSERT_TRUE(run.team().failure());
  EXPECT_EQ(run.team().failure()->rank, 1);
}

TEST(Team, OfManyFailuresAtOnceOneIsTheFirst) {
  Strangers run({.size = 4, .timeout = kLimit}, [](Team& team) {
    const std::string own = "reason of " + std::to_string(team.rank());
    team.fail(team.rank(), own);
    const auto first = team.failure();
    return first && first->reason == "reason of " + std::to_string(first->rank) ? first->rank : 100;
  });
  const int first = run.other(1).wait();
  EXPECT_EQ(run.other(2).wait(), first);
  EXPECT_EQ(run.other(3).wait(), first);
  EXPECT_EQ(run.team().failure()->rank, first);
}

TEST(Team, ALongReasonIsCut) {
  Team team(std::make_shared<TeamMemory>(1), {});
  team.fail(0, std::string(100'000, 'x'));
  EXPECT_GT(team.failure()->reason.size(), 1000U);
  EXPECT_LT(team.failure()->reason.size(), 4000U);
}

// A stopped rank holds up everybody; continued in time, nothing has happened.
TEST(Team, AStopThatIsShorterThanTheLimitIsNoFailure) {
  Strangers run({.size = 2, .timeout = kLimit}, [](Team& team) {
    for (int i = 0; i < 200; ++i) team.meet({.word = 1});
    return 0;
  });
  run.team().meet({.word = 1});
  run.other(1).send(SIGSTOP);
  std::thread waker([&] {
    std::this_thread::sleep_for(300ms);  // the length of the stop
    run.other(1).send(SIGCONT);
  });
  for (int i = 1; i < 200; ++i) run.team().meet({.word = 1});
  waker.join();
  EXPECT_EQ(run.other(1).wait(), 0);
}

TEST(Team, MessagesUseTheNamesOfTheRun) {
  const auto memory = std::make_shared<TeamMemory>(2);
  Team team(memory, {.rank = 0, .timeout = 100ms, .names = {4, 9}});
  EXPECT_THAT(message_of<CommError>([&] { team.meet({}); }),
              AllOf(HasSubstr("rank 9: barrier"), HasSubstr("rank 4 came, rank 9 did not")));
  EXPECT_THAT(message_of<WorkerError>([&] { team.check(); }), HasSubstr("rank 9: barrier"));
  EXPECT_THROW(Team(memory, {.names = {1}}), CommError);
}

TEST(Team, AFailureThatWasPassedOnNamesItsRankItself) {
  EXPECT_EQ(describe_failure(2, " (in epoch 1, batch 2)", "no memory"),
            "rank 2 (in epoch 1, batch 2): no memory");
  EXPECT_EQ(describe_failure(0, "", "rank 2: no memory"), "rank 2: no memory");
  EXPECT_EQ(list_ranks({3}), "rank 3");
  EXPECT_EQ(list_ranks({1, 2}), "ranks 1, 2");
}

// The rank that is late does work of its own for longer than the time limit.
TEST(Team, WorkAloneDoesNotCountAgainstTheTimeLimit) {
  run_ranks({.size = 2, .timeout = 300ms}, [](Team& team) {
    team.meet({});
    if (team.rank() == 0) {
      EXPECT_EQ(team.set_errand(Team::Errand::kAlone), Team::Errand::kNone);
      std::this_thread::sleep_for(1s);
      EXPECT_EQ(team.set_errand(Team::Errand::kNone), Team::Errand::kAlone);
    }
    team.meet({});
  });
}

TEST(Team, WorkAloneHasALimitOfItsOwn) {
  Strangers run({.size = 2, .timeout = 100ms}, [](Team& team) {
    team.set_errand(Team::Errand::kAlone);
    ::pause();
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<CommError>([&] { run.team().meet({}); }), HasSubstr("rank 1"));
  EXPECT_GT(Clock::now() - start, 1s);
}

TEST(Team, AStoppedProcessDoesNotWorkAlone) {
  NumberPipe ready;
  Strangers run({.size = 2, .timeout = 500ms}, [&](Team& team) {
    team.set_errand(Team::Errand::kAlone);
    ready.put(1);
    ::pause();
    return 0;
  });
  ready.take();
  run.other(1).send(SIGSTOP);
  const auto start = Clock::now();
  EXPECT_THAT(message_of<CommError>([&] { run.team().meet({}); }), HasSubstr("rank 1"));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(Team, ALongWaitIsToldWithTheRanksThatAreLate) {
  NumberPipe go;
  Strangers run({.size = 3, .timeout = kLimit}, [&](Team& team) {
    if (team.rank() == 2) go.take();
    team.meet({});
    return 0;
  });
  std::vector<std::vector<int>> told;
  run.team().set_wait_listener([&](const std::vector<int>& late) {
    told.push_back(late);
    if (!late.empty()) go.put(1);
  });
  run.team().meet({});
  EXPECT_EQ(told, (std::vector<std::vector<int>>{{2}, {}}));
}

}  // namespace
}  // namespace lockstep::process
