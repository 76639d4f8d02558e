#include "lockstep/optim/scheduler.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;

struct ScheduleOptions {
  SchedulerSpec scheduler;
};

std::string scheduled(const ScheduleOptions& options) {
  const Schedule schedule(options.scheduler);
  return schedule.scheduler->name();
}

TEST(SchedulerSpec, IsMadeOfEachAggregate) {
  EXPECT_EQ(scheduled({.scheduler = StepLR{.step_size = 3}}), "StepLR");
  EXPECT_EQ(scheduled({.scheduler = MultiStepLR{.milestones = {2, 4}}}), "MultiStepLR");
  EXPECT_EQ(scheduled({.scheduler = ExponentialLR{.gamma = 0.9}}), "ExponentialLR");
  EXPECT_EQ(scheduled({.scheduler = CosineAnnealingLR{}}), "CosineAnnealingLR");
  EXPECT_EQ(scheduled({.scheduler = LinearLR{}}), "LinearLR");
  EXPECT_EQ(scheduled({.scheduler = OneCycleLR{.max_lr = 0.1}}), "OneCycleLR");
  EXPECT_EQ(scheduled({.scheduler = ReduceLROnPlateau{}}), "ReduceLROnPlateau");
}

TEST(SchedulerSpec, IsMadeOfAFunctionOrAChain) {
  EXPECT_EQ(scheduled({.scheduler = FunctionLR{.factor = [](auto, const auto&) { return 1.0; }}}),
            "FunctionLR");
  EXPECT_EQ(scheduled({.scheduler = chain({LinearLR{}, StepLR{.step_size = 3}}, {5})}),
            "SequentialLR");
  EXPECT_EQ(scheduled({.scheduler = warmup(5)}), "LinearLR");
}

TEST(SchedulerSpec, IsMadeOfAUsersClass) {
  EXPECT_EQ(scheduled({.scheduler =
                           [](Optimizer& optimizer, const ScheduleContext& run) {
                             return SchedulerSpec(ExponentialLR{.gamma = 0.5}).make(optimizer, run);
                           }}),
            "ExponentialLR");
  EXPECT_EQ(schedule_error(
                [](Optimizer&, const ScheduleContext&) { return std::unique_ptr<Scheduler>(); }),
            "scheduler: expected a function that makes one, it returned null");
}

TEST(SchedulerSpec, IsEmptyByDefault) {
  const ScheduleOptions options;
  EXPECT_FALSE(options.scheduler);
  EXPECT_TRUE(SchedulerSpec(LinearLR{}).has_value());
  EXPECT_EQ(schedule_error(options.scheduler), "scheduler: expected one, got none");
}

// Ranks compare it.
TEST(Scheduler, DescribesItsNameAndItsState) {
  EXPECT_EQ(Schedule(ExponentialLR{.gamma = 0.5, .per = Per::kBatch}).scheduler->describe(),
            "ExponentialLR(per=batch, step=0, base_lr=0.05, lr=0.05)");
}

TEST(SchedulerSpec, StepsPerEpochUnlessToldOtherwise) {
  EXPECT_EQ(Schedule(LinearLR{}).scheduler->per(), Per::kEpoch);
  EXPECT_EQ(Schedule(LinearLR{.per = Per::kBatch}).scheduler->per(), Per::kBatch);
  EXPECT_EQ(Schedule(OneCycleLR{.max_lr = 0.1, .per = Per::kEpoch}).scheduler->per(), Per::kEpoch);
}

}  // namespace
}  // namespace lockstep::optim
