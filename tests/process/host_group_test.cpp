#include "lockstep/process/host_group.h"

#include <cstring>

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
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Ranks that were started separately, without a supervisor.
class Strangers {
 public:
  Strangers(const RanksOptions& options, const std::function<int(HostGroup&)>& body)
      : memory_(std::make_shared<HostGroupMemory>(options.size)) {
    for (int rank = 1; rank < options.size; ++rank) {
      others_.emplace_back([=, this] {
        HostGroup host_group(memory_, {.rank = rank, .timeout = options.timeout});
        host_group.join();
        return body(host_group);
      });
    }
    host_group_.emplace(memory_, HostGroupOptions{.rank = 0, .timeout = options.timeout});
    host_group_->join();
  }

  HostGroup& host_group() { return *host_group_; }
  RankProcess& other(int rank) { return others_.at(static_cast<std::size_t>(rank) - 1); }

 private:
  std::shared_ptr<HostGroupMemory> memory_;
  std::vector<RankProcess> others_;
  std::optional<HostGroup> host_group_;
};

class Sizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(HostGroup, Sizes, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(Sizes, EveryMeetingShowsTheWordsOfAll) {
  const auto start = Clock::now();
  run_ranks(GetParam(), [](HostGroup& host_group) {
    for (std::uint64_t round = 0; round < 2000; ++round) {
      host_group.meet({.operation = Operation::kVote,
                       .word = round * 100 + static_cast<std::uint64_t>(host_group.rank())});
      for (int rank = 0; rank < host_group.size(); ++rank) {
        ASSERT_EQ(host_group.word(rank), round * 100 + static_cast<std::uint64_t>(rank));
      }
    }
  });
  EXPECT_LT(Clock::now() - start, scaled(10s));
}

// What a rank wrote before a call of meet() can be read after it.
TEST_P(Sizes, MessagesAreThereAfterAMeeting) {
  run_ranks(GetParam(), [](HostGroup& host_group) {
    const auto message_of_rank = [&](int rank) {
      return host_group.messages() + static_cast<std::size_t>(rank) * HostGroup::kMessageBytes;
    };
    std::memset(message_of_rank(host_group.rank()), host_group.rank() + 1, 1000);
    host_group.meet({.operation = Operation::kGather});
    for (int rank = 0; rank < host_group.size(); ++rank) {
      ASSERT_EQ(std::to_integer<int>(message_of_rank(rank)[999]), rank + 1);
    }
  });
}

TEST(HostGroup, HasRoomForTheMessagesOfEachRankAndOfAll) {
  const auto memory = std::make_shared<HostGroupMemory>(3);
  const HostGroup host_group(memory, {});
  std::memset(host_group.messages(), 1, 4 * HostGroup::kMessageBytes);
  EXPECT_EQ(memory->memory.data() + memory->memory.size(),
            host_group.messages() + 4 * HostGroup::kMessageBytes);
  EXPECT_EQ(host_group.state(1), MemberState::kEmpty);
  EXPECT_FALSE(host_group.failure());
}

TEST(HostGroup, ARankThatIsNotOfItIsRefused) {
  const auto memory = std::make_shared<HostGroupMemory>(2);
  EXPECT_THAT(message_of<CommError>([&] { HostGroup(memory, {.rank = 2}); }),
              HasSubstr("expected 0 to 1, got 2"));
}

TEST(HostGroup, DifferentOperationsAreToldToAll) {
  const NumberPipe told;
  run_ranks(2, [&](HostGroup& host_group) {
    host_group.set_progress(3, 7);
    const std::string text = message_of<CommError>([&] {
      if (host_group.rank() == 0) {
        host_group.meet({.operation = Operation::kAllReduce, .detail = 4000});
      } else {
        host_group.meet({.operation = Operation::kBroadcast, .detail = 8});
      }
    });
    if (host_group.rank() == 0) {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("rank 0 called 'all_reduce of 4000 bytes'"),
                        HasSubstr("rank 1 (in epoch 3, batch 7) called 'broadcast of 8 bytes'")));
    } else {
      EXPECT_THAT(text, AllOf(HasSubstr("rank 1 called 'broadcast of 8 bytes'"),
                              HasSubstr("rank 0 (in epoch 3, batch 7) called 'all_reduce of")));
    }
  });
}

TEST(HostGroup, DifferentSizesAreTold) {
  run_ranks(2, [](HostGroup& host_group) {
    EXPECT_THAT(message_of<CommError>([&] {
                  host_group.meet({.operation = Operation::kAllReduce,
                                   .detail = host_group.rank() == 0 ? 40U : 44U});
                }),
                HasSubstr("all ranks must do the same"));
  });
}

TEST(HostGroup, ARankThatNeverComesIsNamedWithinTheLimit) {
  Strangers run({.size = 4, .timeout = 500ms}, [](HostGroup& host_group) {
    if (host_group.rank() == 2)
      return eventually([&] { return host_group.failure().has_value(); }) ? 0 : 1;
    const std::string text =
        message_of<Error>([&] { host_group.meet({.operation = Operation::kBarrier}); });
    return text.find("ranks 0, 1, 3 arrived, rank 2 did not") != std::string::npos ? 0 : 1;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] { run.host_group().meet({.operation = Operation::kBarrier}); }),
              AllOf(HasSubstr("rank 2"), ContainsRegex("barrier: waited 0\\.[56] s:"),
                    HasSubstr("ranks 0, 1, 3 arrived, rank 2 did not")));
  EXPECT_GE(Clock::now() - start, 400ms);
  EXPECT_LT(Clock::now() - start, scaled(900ms));
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(run.other(rank).wait(), 0);
  // No further call succeeds after that.
  EXPECT_THROW(run.host_group().meet({}), WorkerError);
}

// The time limit is for the whole call of meet(), not for each rank that it waits for.
TEST(HostGroup, SeveralThatAreLateShareTheLimit) {
  Strangers run({.size = 3, .timeout = 600ms}, [](HostGroup& host_group) {
    if (host_group.rank() == 1) {
      std::this_thread::sleep_for(400ms);  // makes this rank late; not for synchronisation
      message_of<Error>([&] { host_group.meet({}); });
    } else {
      eventually([&] { return host_group.failure().has_value(); });
    }
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] { run.host_group().meet({}); }),
              HasSubstr("ranks 0, 1 arrived, rank 2 did not"));
  EXPECT_LT(Clock::now() - start, scaled(900ms));
}

TEST(HostGroup, ARankThatWasKilledIsNoticedWithoutASupervisor) {
  for (const bool waits_already : {false, true}) {
    Strangers run({.size = 3, .timeout = kLimit}, [&](HostGroup& host_group) {
      host_group.set_progress(2, 5);
      if (host_group.rank() == 1) return eventually([] { return false; }) ? 0 : 1;
      return message_of<WorkerError>([&] { host_group.meet({}); }).starts_with("rank 1") ? 0 : 1;
    });
    ASSERT_TRUE(eventually([&] { return run.host_group().state(1) == MemberState::kPresent; }));
    ASSERT_TRUE(eventually([&] { return run.host_group().progress(1) != ""; }));
    std::thread killer;
    if (waits_already) {
      killer = std::thread([&] {
        std::this_thread::sleep_for(200ms);  // rank 0 waits by then; not for synchronisation
        run.other(1).send(SIGKILL);
      });
    } else {
      run.other(1).send(SIGKILL);
    }
    const auto start = Clock::now();
    EXPECT_EQ(message_of<WorkerError>([&] { run.host_group().meet({}); }),
              "rank 1 (in epoch 2, batch 5): its process ended without reporting an error");
    EXPECT_LT(Clock::now() - start, scaled(2s));
    if (killer.joinable()) killer.join();
    EXPECT_EQ(run.other(2).wait(), 0);
  }
}

// The rank waits for something else than meet(), and has met the others before.
TEST(HostGroup, ARankThatWasKilledIsNoticedOutsideOfAMeeting) {
  Strangers run({.size = 3, .timeout = kLimit}, [](HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() == 1) return wait_for_ever();
    return eventually([&] { return host_group.failure().has_value(); }) ? 0 : 1;
  });
  run.host_group().meet({});
  run.host_group().check_processes();
  run.other(1).send(SIGKILL);
  std::string text;
  EXPECT_TRUE(eventually([&] {
    text = message_of<WorkerError>([&] { run.host_group().check_processes(); });
    return !text.empty();
  }));
  EXPECT_EQ(text, "rank 1: its process ended without reporting an error");
  EXPECT_EQ(run.host_group().failure()->kind, FailureKind::kLost);
  EXPECT_EQ(run.other(2).wait(), 0);
}

// A rank that left was done with what this rank still waits for.
TEST(HostGroup, ARankThatLeftIsNotMissedOutsideOfAMeeting) {
  Strangers run({.size = 2, .timeout = kLimit}, [](HostGroup& host_group) {
    host_group.meet({});
    host_group.set_state(MemberState::kLeft);
    return 0;
  });
  run.host_group().meet({});
  EXPECT_EQ(run.other(1).wait(), 0);
  // Longer than a rank that was lost is given.
  for (const auto start = Clock::now(); Clock::now() - start < 400ms;) {
    run.host_group().check_processes();
  }
  EXPECT_FALSE(run.host_group().failure());
}

// Old kernels and old containers have no pidfds.
TEST(HostGroup, ARankThatWasKilledIsNoticedWithoutAPidfd) {
  Strangers run({.size = 3, .timeout = kLimit}, [&](HostGroup& host_group) {
    if (host_group.rank() == 1) return eventually([] { return false; }) ? 0 : 1;
    forbid_pidfd();
    if (open_pidfd(host_group.pid(0))) return 2;
    return message_of<WorkerError>([&] { host_group.meet({}); }).starts_with("rank 1") ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return run.host_group().state(1) == MemberState::kPresent; }));
  run.other(1).send(SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(run.other(2).wait(), 0);
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(HostGroup, ARankThatLeftIsMissed) {
  Strangers run({.size = 2, .timeout = kLimit}, [](HostGroup& host_group) {
    host_group.meet({});
    host_group.set_state(MemberState::kLeft);
    return eventually([&] { return host_group.failure().has_value(); }) ? 0 : 1;
  });
  run.host_group().meet({});
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { run.host_group().meet({}); }),
            "rank 1: left before the others were done");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_EQ(run.other(1).wait(), 0);
}

// The rank has called meet() for the last time, so no other rank waits for it any more.
TEST(HostGroup, ARankMayLeaveWhileOthersAreStillInTheLastMeeting) {
  for (int round = 0; round < 20; ++round) {
    Strangers run({.size = 3, .timeout = kLimit}, [](HostGroup& host_group) {
      host_group.meet({});
      host_group.set_state(MemberState::kLeft);
      return 0;
    });
    run.host_group().meet({});
    EXPECT_EQ(run.other(1).wait(), 0);
    EXPECT_EQ(run.other(2).wait(), 0);
    EXPECT_FALSE(run.host_group().failure());
  }
}

TEST(HostGroup, AFailureWakesWaitingRanks) {
  Strangers run({.size = 3, .timeout = kLimit}, [](HostGroup& host_group) {
    if (host_group.rank() == 1) {
      host_group.fail(1, "no memory");
      EXPECT_FALSE(host_group.fail(1, "another"));
      return 0;
    }
    return message_of<WorkerError>([&] { host_group.meet({}); }) == "rank 1: no memory" ? 0 : 1;
  });
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { run.host_group().meet({}); }), "rank 1: no memory");
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_EQ(run.other(1).wait(), 0);
  EXPECT_EQ(run.other(2).wait(), 0);
  ASSERT_TRUE(run.host_group().failure());
  EXPECT_EQ(run.host_group().failure()->rank, 1);
}

TEST(HostGroup, OfManyFailuresAtOnceOneIsTheFirst) {
  Strangers run({.size = 4, .timeout = kLimit}, [](HostGroup& host_group) {
    const std::string own = "reason of " + std::to_string(host_group.rank());
    host_group.fail(host_group.rank(), own);
    const auto first = host_group.failure();
    return first && first->reason == "reason of " + std::to_string(first->rank) ? first->rank : 100;
  });
  const int first = run.other(1).wait();
  EXPECT_EQ(run.other(2).wait(), first);
  EXPECT_EQ(run.other(3).wait(), first);
  EXPECT_EQ(run.host_group().failure()->rank, first);
}

TEST(HostGroup, ALongReasonIsCut) {
  HostGroup host_group(std::make_shared<HostGroupMemory>(1), {});
  host_group.fail(0, std::string(100'000, 'x'));
  EXPECT_GT(host_group.failure()->reason.size(), 1000U);
  EXPECT_LT(host_group.failure()->reason.size(), 4000U);
}

// A stopped rank delays all ranks. If it continues in time, that is no failure.
TEST(HostGroup, AStopThatIsShorterThanTheLimitIsNoFailure) {
  Strangers run({.size = 2, .timeout = kLimit}, [](HostGroup& host_group) {
    for (int i = 0; i < 200; ++i) host_group.meet({.word = 1});
    return 0;
  });
  run.host_group().meet({.word = 1});
  run.other(1).send(SIGSTOP);
  std::thread waker([&] {
    std::this_thread::sleep_for(300ms);  // the length of the stop
    run.other(1).send(SIGCONT);
  });
  for (int i = 1; i < 200; ++i) run.host_group().meet({.word = 1});
  waker.join();
  EXPECT_EQ(run.other(1).wait(), 0);
}

TEST(HostGroup, MessagesUseTheNamesOfTheRun) {
  const auto memory = std::make_shared<HostGroupMemory>(2);
  HostGroup host_group(memory, {.rank = 0, .timeout = 100ms, .names = {4, 9}});
  EXPECT_THAT(message_of<CommError>([&] { host_group.meet({}); }),
              AllOf(HasSubstr("rank 9: barrier"), HasSubstr("rank 4 arrived, rank 9 did not")));
  EXPECT_THAT(message_of<WorkerError>([&] { host_group.check(); }), HasSubstr("rank 9: barrier"));
  EXPECT_THROW(HostGroup(memory, {.names = {1}}), CommError);
}

TEST(HostGroup, AFailureThatWasPassedOnNamesItsRankItself) {
  EXPECT_EQ(describe_failure(2, " (in epoch 1, batch 2)", "no memory"),
            "rank 2 (in epoch 1, batch 2): no memory");
  EXPECT_EQ(describe_failure(0, "", "rank 2: no memory"), "rank 2: no memory");
  EXPECT_EQ(list_ranks({3}), "rank 3");
  EXPECT_EQ(list_ranks({1, 2}), "ranks 1, 2");
}

// The late rank does work without the other ranks for longer than the time limit.
TEST(HostGroup, WorkAloneDoesNotCountAgainstTheTimeLimit) {
  run_ranks({.size = 2, .timeout = 300ms}, [](HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() == 0) {
      EXPECT_EQ(host_group.set_late_reason(HostGroup::LateReason::kAlone),
                HostGroup::LateReason::kNone);
      std::this_thread::sleep_for(1s);
      EXPECT_EQ(host_group.set_late_reason(HostGroup::LateReason::kNone),
                HostGroup::LateReason::kAlone);
    }
    host_group.meet({});
  });
}

TEST(HostGroup, WorkAloneHasALimitOfItsOwn) {
  Strangers run({.size = 2, .timeout = 100ms}, [](HostGroup& host_group) {
    host_group.set_late_reason(HostGroup::LateReason::kAlone);
    ::pause();
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_THAT(message_of<CommError>([&] { run.host_group().meet({}); }),
              AllOf(HasSubstr("rank 1"), ContainsRegex("waited [1-9][0-9]*\\.[0-9] s:")));
  EXPECT_GT(Clock::now() - start, 1s);
}

TEST(HostGroup, AStoppedProcessDoesNotWorkAlone) {
  NumberPipe ready;
  Strangers run({.size = 2, .timeout = 500ms}, [&](HostGroup& host_group) {
    host_group.set_late_reason(HostGroup::LateReason::kAlone);
    ready.put(1);
    ::pause();
    return 0;
  });
  ready.take();
  run.other(1).send(SIGSTOP);
  const auto start = Clock::now();
  EXPECT_THAT(message_of<CommError>([&] { run.host_group().meet({}); }), HasSubstr("rank 1"));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(HostGroup, ALongWaitIsToldWithTheRanksThatAreLate) {
  NumberPipe go;
  Strangers run({.size = 3, .timeout = kLimit}, [&](HostGroup& host_group) {
    if (host_group.rank() == 2) go.take();
    host_group.meet({});
    return 0;
  });
  std::vector<std::vector<int>> told;
  run.host_group().set_wait_listener([&](const std::vector<int>& late) {
    told.push_back(late);
    if (!late.empty()) go.put(1);
  });
  run.host_group().meet({});
  EXPECT_EQ(told, (std::vector<std::vector<int>>{{2}, {}}));
}

TEST(HostGroup, AFailureHasItsKindAndTheProgressOfItsRank) {
  const auto memory = std::make_shared<HostGroupMemory>(3);
  HostGroup one(memory, {.rank = 1});
  HostGroup two(memory, {.rank = 2, .names = {4, 5, 6}});
  one.set_progress(3, 17);
  EXPECT_FALSE(two.failure());
  EXPECT_FALSE(two.named_failure());
  EXPECT_TRUE(two.fail(1, "did not answer", FailureKind::kHang));
  EXPECT_FALSE(one.fail(1, "no memory", FailureKind::kOutOfMemory)) << "the first one is kept";
  one.set_progress(3, 18);
  const auto failure = one.failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->reason, "did not answer");
  EXPECT_EQ(failure->kind, FailureKind::kHang);
  EXPECT_EQ(failure->epoch, 3);
  EXPECT_EQ(failure->batch, 17);
  EXPECT_EQ(two.named_failure()->rank, 5);
}

TEST(HostGroup, ATimeOutIsAHang) {
  Strangers run({.size = 2, .timeout = 200ms}, [](HostGroup&) { return wait_for_ever(); });
  EXPECT_THROW(run.host_group().meet({}), CommError);
  ASSERT_TRUE(run.host_group().failure());
  EXPECT_EQ(run.host_group().failure()->rank, 1);
  EXPECT_EQ(run.host_group().failure()->kind, FailureKind::kHang);
}

TEST(HostGroup, AProcessThatIsGoneIsLost) {
  Strangers run({.size = 2, .timeout = kLimit}, [](HostGroup&) { return 0; });
  EXPECT_THROW(run.host_group().meet({}), WorkerError);
  EXPECT_EQ(run.host_group().failure()->kind, FailureKind::kLost);
}

TEST(HostGroup, ARankThatLeftIsAnError) {
  Strangers run({.size = 2, .timeout = kLimit}, [](HostGroup& host_group) {
    host_group.set_state(MemberState::kLeft);
    return wait_for_ever();
  });
  EXPECT_THROW(run.host_group().meet({}), WorkerError);
  EXPECT_EQ(run.host_group().failure()->kind, FailureKind::kError);
}

}  // namespace
}  // namespace lockstep::process
