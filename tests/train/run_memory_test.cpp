#include "lockstep/train/run_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using process::FailureKind;
using process::RankFailure;
using Clock = std::chrono::steady_clock;

RankFailure lost(std::int64_t epoch = 1, std::int64_t batch = 1) {
  return {.rank = 1,
          .reason = "its process was killed",
          .kind = FailureKind::kLost,
          .epoch = epoch,
          .batch = batch};
}

class Counting final : public Logger {
 public:
  void log_metrics(const Record&) override { ++records; }
  void close() override { ++closes; }
  int records = 0, closes = 0;
};

TEST(RunMemory, EveryAttemptBeginsWithTheWeightsOfTheFirst) {
  RunMemory memory(3);
  const Model model = toy::model();
  memory.begin_attempt(model);
  const StateDict first = model.state();
  {
    const torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : model.parameters()) tensor.add_(1);
  }
  model.parameters()[0].second.set_requires_grad(false);
  memory.begin_attempt(model);
  for (const auto& [name, tensor] : model.weights()) {
    EXPECT_TRUE(torch::equal(tensor, first.get<torch::Tensor>(name))) << name;
  }
  EXPECT_TRUE(model.parameters()[0].second.requires_grad());
}

TEST(RunMemory, LoggersGoBackToThePoint) {
  const auto inner = std::make_shared<Counting>();
  {
    RunMemory memory(3);
    memory.set_loggers({std::make_shared<OnceLogger>(inner)});
    memory.note_log_positions();
    const auto& logger = memory.loggers().front();
    logger->log_metrics({});
    memory.keep_point({}, Clock::now());
    logger->log_metrics({});
    memory.rewind_loggers();
    logger->log_metrics({});
    logger->log_metrics({});
    EXPECT_EQ(inner->records, 3);
  }
  EXPECT_EQ(inner->closes, 1);
}

TEST(RunMemory, PointsTakeASmallShareOfTheTime) {
  RunMemory memory(3);
  EXPECT_TRUE(memory.is_point_due()) << "there is none yet";
  memory.keep_point({}, Clock::now() - std::chrono::seconds(1));
  EXPECT_FALSE(memory.is_point_due()) << "it took a second, so the next one is due in 400 s";
  EXPECT_FALSE(memory.is_point_overdue());
  memory.keep_point({}, Clock::now());
  const auto limit = Clock::now() + std::chrono::seconds(10);
  while (!memory.is_point_due() && Clock::now() < limit) {
  }
  EXPECT_TRUE(memory.is_point_due()) << "it took no time";
  while (!memory.is_point_overdue() && Clock::now() < limit) {
  }
  EXPECT_TRUE(memory.is_point_overdue()) << "as much time again has passed";
}

TEST(RunMemory, ARecoveryIsCompleteWithTheNextBatch) {
  RunMemory memory(3);
  memory.keep_point({}, Clock::now());
  for (int i = 0; i < 4; ++i) memory.count_batch();
  EXPECT_FALSE(memory.complete_recovery()) << "nothing has failed";
  EXPECT_TRUE(memory.will_restart(lost(2, 5)));
  EXPECT_TRUE(memory.try_again({.error = std::make_exception_ptr(Error("later"))}));
  EXPECT_EQ(memory.restarts(), 1) << "the failure is counted once";
  // The next attempt fails before it has finished a batch.
  EXPECT_TRUE(memory.will_restart(lost(2, 5)));
  EXPECT_TRUE(memory.try_again({}));
  memory.count_batch();
  const auto recovery = memory.complete_recovery();
  ASSERT_TRUE(recovery);
  EXPECT_EQ(recovery->rank, 1);
  EXPECT_EQ(recovery->kind, "lost");
  EXPECT_EQ(recovery->epoch, 2);
  EXPECT_EQ(recovery->batch, 5);
  EXPECT_EQ(recovery->repeated_batches, 4);
  EXPECT_GE(recovery->seconds, 0.1) << "the second restart waits";
  EXPECT_EQ(memory.recoveries(), 1);
  EXPECT_FALSE(memory.complete_recovery());
}

// As under a launcher, which starts the program again after each failure.
TEST(RunMemory, RecoveriesBetweenTwoPointsAreCounted) {
  const auto file = std::make_shared<process::MemoryFile>();
  comm::Local alone;
  const auto failed = Clock::now() - std::chrono::seconds(5);
  for (int attempt = 0; attempt < 3; ++attempt) {
    file->begin_attempt({.attempt = attempt, .failed = failed});
    RunMemory memory(StoredRun(file, 0), {.max_restarts = 5, .identity = "run"});
    memory.take_over(alone);
    const auto recovery = memory.complete_recovery();
    EXPECT_EQ(recovery.has_value(), attempt > 0);
    EXPECT_EQ(memory.recoveries(), attempt);
    if (recovery) {
      const auto ago = std::chrono::system_clock::now() - recovery->time;
      EXPECT_NEAR(std::chrono::duration<double>(ago).count(), 5, 1) << "the time of the failure";
    }
    memory.begin_logs();
    file->note_failure({.attempt = attempt, .rank = 0, .kind = FailureKind::kLost, .reason = "x"});
  }
}

TEST(RunMemory, ANewProcessKnowsHowManyBatchesItRepeats) {
  const auto file = std::make_shared<process::MemoryFile>();
  comm::Local alone;
  // Returns the batches that the attempt repeats, if it is one that goes on and knows.
  const auto attempt = [&](int number, int batches) -> std::optional<std::int64_t> {
    file->begin_attempt({.attempt = number, .failed = Clock::now()});
    RunMemory memory(StoredRun(file, 0), {.max_restarts = 9, .identity = "run"});
    memory.take_over(alone);
    memory.begin_logs();
    std::optional<std::int64_t> repeated;
    for (int i = 0; i < batches; ++i) {
      memory.count_batch();
      if (const auto recovery = memory.complete_recovery()) repeated = recovery->repeated_batches;
    }
    file->note_failure({.attempt = number, .rank = 1, .kind = FailureKind::kLost, .reason = "x"});
    return repeated;
  };
  EXPECT_EQ(attempt(0, 3), std::nullopt) << "the first one";
  EXPECT_EQ(attempt(1, 0), std::nullopt) << "it failed before its first batch";
  EXPECT_EQ(attempt(2, 2), 3);
  EXPECT_EQ(attempt(3, 1), 2);
  EXPECT_EQ(attempt(5, 1), std::nullopt) << "in attempt 4, rank 0 was on another host";
}

// With --nnodes MIN:MAX, the launcher counts only what is not the loss of a node, and it alone
// knows whether enough nodes are left.
TEST(RunMemory, LostNodesDoNotCountIfNodesMayLeave) {
  for (const bool is_elastic : {false, true}) {
    const auto file = std::make_shared<process::MemoryFile>();
    file->note_failure({.attempt = 0, .rank = -1, .kind = FailureKind::kLost, .reason = "node b"});
    file->begin_attempt({.attempt = 1, .failed = Clock::now()});
    RunMemory memory(StoredRun(file, 0), {.max_restarts = 1, .is_elastic = is_elastic});
    EXPECT_EQ(memory.restart_count().most.has_value(), !is_elastic);
    EXPECT_EQ(memory.will_restart(lost(1, 1), /*may_be_node=*/true), is_elastic);
    EXPECT_EQ(memory.will_restart(lost(1, 2)), is_elastic) << "the first one that counts";
    EXPECT_FALSE(memory.will_restart(lost(1, 3)));
  }
}

// A failure before the ranks are connected is known only as an exception.
TEST(RunMemory, AFailureOutsideOfTheLoopIsDecidedLater) {
  RunMemory memory(5);
  EXPECT_TRUE(memory.try_again({.error = std::make_exception_ptr(CommError("no route"))}));
  EXPECT_FALSE(memory.try_again({.error = std::make_exception_ptr(ConfigError("a wrong option"))}));
  RunMemory other(5);
  EXPECT_TRUE(other.try_again({.error = std::make_exception_ptr(CommError("no route"))}));
  EXPECT_EQ(other.describe_refusal(), "");
  EXPECT_FALSE(other.try_again({.error = std::make_exception_ptr(CommError("no route"))}))
      << "the same again";
  EXPECT_THAT(other.describe_refusal(), testing::HasSubstr("no route"));
}

TEST(RunMemory, AfterItsEndNothingIsTriedAgain) {
  RunMemory memory(5);
  EXPECT_FALSE(memory.has_begun_callbacks());
  memory.begin_callbacks();
  EXPECT_TRUE(memory.try_again({.error = std::make_exception_ptr(CommError("no route"))}));
  EXPECT_TRUE(memory.has_begun_callbacks()) << "the callbacks do not learn of this failure";
  memory.end();
  EXPECT_FALSE(memory.has_begun_callbacks());
  EXPECT_FALSE(memory.try_again({.error = std::make_exception_ptr(Error("in on_run_end"))}));
  EXPECT_EQ(memory.describe_refusal(), "") << "the failures before were overcome";
}

}  // namespace
}  // namespace lockstep
