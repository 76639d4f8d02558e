#include "lockstep/train/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using process::FailureKind;
using process::RankFailure;
using testing::HasSubstr;

RankFailure failure(FailureKind kind, std::int64_t epoch = 1, std::int64_t batch = 1) {
  return {.rank = 1, .reason = "why", .kind = kind, .epoch = epoch, .batch = batch};
}

TEST(RestartPolicy, ALostProcessIsReplacedUntilTheBudgetIsUsed) {
  RestartPolicy policy(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(policy.allows_another(failure(FailureKind::kLost)));  // always at the same batch
  }
  EXPECT_EQ(policy.restarts(), 3);
  EXPECT_FALSE(policy.allows_another(failure(FailureKind::kHang, 2, 5)));
  EXPECT_EQ(policy.restarts(), 3);
  const std::string why = policy.describe_refusal();
  EXPECT_THAT(why, HasSubstr("max_restarts is 3"));
  EXPECT_THAT(why, HasSubstr("1. rank 1 (in epoch 1, batch 1): why"));
  EXPECT_THAT(why, HasSubstr("4. rank 1 (in epoch 2, batch 5): why"));
}

TEST(RestartPolicy, TheSameExceptionAtTheSameBatchTwiceEndsTheRun) {
  for (const FailureKind kind : {FailureKind::kError, FailureKind::kOutOfMemory}) {
    RestartPolicy policy(9);
    EXPECT_TRUE(policy.allows_another(failure(kind, 2, 3)));
    EXPECT_TRUE(policy.allows_another(failure(kind, 2, 4))) << "another batch";
    EXPECT_TRUE(policy.allows_another(failure(FailureKind::kLost, 2, 3))) << "another kind";
    EXPECT_FALSE(policy.allows_another(failure(kind, 2, 3)));
    EXPECT_THAT(policy.describe_refusal(), HasSubstr("same batch twice"));
  }
}

TEST(RestartPolicy, AWrongOptionIsNotTriedAgain) {
  RestartPolicy policy(9);
  EXPECT_FALSE(policy.allows_another(failure(FailureKind::kConfig)));
  EXPECT_EQ(policy.describe_refusal(), "") << "the error itself says everything";
}

TEST(RestartPolicy, WaitsLongerEachTime) {
  RestartPolicy policy(20);
  std::vector<std::chrono::milliseconds> waits;
  for (int i = 0; i < 9; ++i) {
    policy.allows_another(failure(FailureKind::kLost));
    waits.push_back(policy.backoff());
  }
  EXPECT_THAT(
      waits, testing::ElementsAre(0ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms));
}

}  // namespace
}  // namespace lockstep
