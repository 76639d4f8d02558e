#include "lockstep/optim/function_scheduler.h"

#include <cmath>

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(FunctionLR, MultipliesTheFirstLearningRate) {
  Schedule schedule(FunctionLR{.factor = [](std::int64_t step, const ScheduleContext&) {
    return 1.0 / static_cast<double>(1 + step);
  }});
  EXPECT_EQ(schedule.scheduler->name(), "FunctionLR");
  EXPECT_EQ(schedule.scheduler->per(), Per::kEpoch);
  EXPECT_EQ(schedule.lr(), 0.05);
  schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.025);
  schedule.training.optimizer->set_lr(7);  // has no effect on the next step
  schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.05 / 3);
}

TEST(FunctionLR, KnowsTheLengthOfTheRun) {
  const FunctionLR linear{.factor =
                              [](std::int64_t step, const ScheduleContext& run) {
                                return 1.0 - static_cast<double>(step) /
                                                 static_cast<double>(run.steps(Per::kBatch));
                              },
                          .per = Per::kBatch};
  Schedule schedule(linear, {.num_epochs = 3, .steps_per_epoch = 4});
  for (int i = 0; i < 6; ++i) schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.025);
  Schedule shorter(linear, {.num_epochs = 3, .steps_per_epoch = 4, .num_steps = 10});
  for (int i = 0; i < 5; ++i) shorter.scheduler->step();
  EXPECT_DOUBLE_EQ(shorter.lr(), 0.025);
}

TEST(FunctionLR, ResumesFromItsPosition) {
  const FunctionLR options{.factor = [](std::int64_t step, const ScheduleContext&) {
    return std::exp(-0.1 * static_cast<double>(step));
  }};
  Schedule straight(options);
  for (int i = 0; i < 5; ++i) straight.scheduler->step();
  const StateDict state = straight.scheduler->state();
  // The options of the resumed run may have another learning rate; that of the run is kept.
  Schedule resumed(options, {}, SGD{.lr = 3});
  resumed.scheduler->load_state(state);
  EXPECT_EQ(resumed.lr(), straight.lr());
  straight.scheduler->step();
  resumed.scheduler->step();
  EXPECT_EQ(resumed.lr(), straight.lr());
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { resumed.scheduler->load_state(Schedule(LinearLR{}).scheduler->state()); }),
            "scheduler FunctionLR: expected its own state, found that of LinearLR");
}

TEST(FunctionLR, IsDescribedByAFewOfItsFactors) {
  const FunctionLR options{.factor = [](std::int64_t step, const ScheduleContext&) {
    return 1.0 / static_cast<double>(1 + step);
  }};
  EXPECT_EQ(
      Schedule(options, {.num_epochs = 4}).scheduler->describe(),
      "FunctionLR(per=epoch, lr=0.05, factors=[0: 1, 1: 0.5, 2: 0.3333333333333333, 3: 0.25])");
}

TEST(FunctionLR, NamesABadValue) {
  EXPECT_EQ(schedule_error(FunctionLR{}),
            "scheduler FunctionLR: factor: expected a function, got none");
  EXPECT_EQ(schedule_error(
                FunctionLR{.factor = [](std::int64_t, const ScheduleContext&) { return -1.0; }}),
            "scheduler FunctionLR: factor(0): expected a number >= 0, got -1");
  EXPECT_EQ(schedule_error(
                FunctionLR{.factor = [](std::int64_t, const ScheduleContext&) { return NAN; }}),
            "scheduler FunctionLR: factor(0): expected a number >= 0, got nan");
}

}  // namespace
}  // namespace lockstep::optim
