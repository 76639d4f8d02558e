#include "lockstep/optim/sequential_scheduler.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using nlohmann::json;

SchedulerSpec part_of(const json& part) {
  const std::string name = part[0];
  const json& options = part[1];
  if (name == "LinearLR") {
    return LinearLR{.start_factor = options["start_factor"],
                    .total_iters = options["total_iters"].get<std::int64_t>()};
  }
  if (name == "CosineAnnealingLR") {
    return CosineAnnealingLR{.t_max = options["T_max"].get<std::int64_t>(),
                             .eta_min = options["eta_min"]};
  }
  if (name == "ExponentialLR") return ExponentialLR{.gamma = options["gamma"].get<double>()};
  if (name == "StepLR") {
    return StepLR{.step_size = options["step_size"].get<std::int64_t>(), .gamma = options["gamma"]};
  }
  return MultiStepLR{.milestones = options["milestones"].get<std::vector<std::int64_t>>(),
                     .gamma = options["gamma"]};
}

TEST(SequentialLR, FollowsPyTorch) {
  expect_golden_schedule("SequentialLR", [](const json& options) {
    std::vector<SchedulerSpec> parts;
    for (const json& part : options["schedulers"]) parts.push_back(part_of(part));
    return chain(parts, options["milestones"].get<std::vector<std::int64_t>>());
  });
}

std::vector<double> rates(Schedule& schedule, int steps) {
  std::vector<double> rates{schedule.lr()};
  for (int i = 0; i < steps; ++i) {
    schedule.scheduler->step();
    rates.push_back(schedule.lr());
  }
  return rates;
}

// The parts of the inner chain are those of the outer one, if the milestones are the same.
TEST(SequentialLR, CanBeNested) {
  const LinearLR first{.start_factor = 0.1, .total_iters = 3};
  const ExponentialLR second{.gamma = 0.5};
  const StepLR third{.step_size = 2};
  Schedule flat(chain({first, second, third}, {3, 5}));
  Schedule left(chain({chain({first, second}, {3}), third}, {5}));
  Schedule right(chain({first, chain({second, third}, {2})}, {3}));
  const auto expected = rates(flat, 12);
  EXPECT_EQ(rates(left, 12), expected);
  EXPECT_EQ(rates(right, 12), expected);
  Schedule resumed(chain({first, chain({second, third}, {2})}, {3}));
  Schedule straight(chain({first, chain({second, third}, {2})}, {3}));
  rates(straight, 6);
  resumed.scheduler->load_state(straight.scheduler->state());
  EXPECT_EQ(rates(resumed, 5), rates(straight, 5));
}

TEST(SequentialLR, APartThatSpansTheRunSpansTheRestOfIt) {
  const ScheduleContext run{.num_epochs = 3, .steps_per_epoch = 4};
  Schedule schedule(warmup(2, CosineAnnealingLR{.eta_min = 0.01, .per = Per::kBatch}), run);
  const auto all = rates(schedule, 12);
  EXPECT_DOUBLE_EQ(all[0], 0.0005);
  EXPECT_DOUBLE_EQ(all[2], 0.05);
  EXPECT_GT(all[11], 0.0101);
  EXPECT_DOUBLE_EQ(all[12], 0.01);
}

// A warm-up in batches before a scheduler that steps in epochs, and the metric of a plateau.
TEST(SequentialLR, PartsMayDifferInWhenTheyStep) {
  Schedule schedule(warmup(3, StepLR{.step_size = 1, .gamma = 0.5}, {.start_factor = 0.4}));
  EXPECT_EQ(schedule.scheduler->per(), Per::kBatch);
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.02);
  for (int i = 0; i < 3; ++i) schedule.scheduler->step();
  EXPECT_EQ(schedule.scheduler->per(), Per::kEpoch);
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.05);
  schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.025);
  // The switch is in the second of four epochs, so three ends of epochs follow.
  Schedule cosine(warmup(3, CosineAnnealingLR{}), {.num_epochs = 4, .steps_per_epoch = 2});
  for (int i = 0; i < 3; ++i) cosine.scheduler->step();
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(cosine.lr(), 0.001);
    cosine.scheduler->step();
  }
  EXPECT_NEAR(cosine.lr(), 0.0, 1e-12);
}

TEST(SequentialLR, APlateauMayComeLast) {
  Schedule schedule(warmup(2, ReduceLROnPlateau{.factor = 0.5, .patience = 0}));
  Scheduler& scheduler = *schedule.scheduler;
  EXPECT_TRUE(scheduler.will_need_metric());
  EXPECT_TRUE(scheduler.needs_direction());
  EXPECT_FALSE(scheduler.needs_metric()) << "during the warm-up";
  scheduler.set_minimize(false);
  scheduler.step();
  scheduler.step();
  EXPECT_TRUE(scheduler.needs_metric());
  scheduler.step(1.0);
  scheduler.step(2.0);
  EXPECT_EQ(schedule.lr(), 0.05) << "larger is better";
  scheduler.step(1.0);
  EXPECT_EQ(schedule.lr(), 0.025);
  Schedule resumed(warmup(2, ReduceLROnPlateau{.factor = 0.5, .patience = 0}));
  resumed.scheduler->load_state(scheduler.state());
  resumed.scheduler->set_minimize(false);
  EXPECT_EQ(resumed.lr(), 0.025);
  resumed.scheduler->step(1.5);
  EXPECT_EQ(resumed.lr(), 0.0125) << "the best metric is known";
  EXPECT_FALSE(Schedule(warmup(2)).scheduler->will_need_metric());
}

TEST(SequentialLR, MakingItLeavesTheMomentumAlone) {
  const Schedule schedule(chain({LinearLR{}, OneCycleLR{.max_lr = 1}}, {5}), {.num_epochs = 50});
  EXPECT_EQ(schedule.training.optimizer->momentum(), 0.9);
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.05 / 3);
}

// A class of a user that knows the length of the run.
class Countdown : public Scheduler {
 public:
  Countdown(Optimizer& optimizer, std::int64_t steps) : optimizer_(optimizer), left_(steps) {}
  std::string name() const override { return "Countdown"; }
  Per per() const override { return Per::kBatch; }
  void step(std::optional<double>) override {
    --left_;
    optimizer_.set_lr(static_cast<double>(left_));
  }
  StateDict state() const override { return {{"left", left_}}; }
  void load_state(const StateDict& state) override {
    left_ = state.get<std::int64_t>("left");
    optimizer_.set_lr(static_cast<double>(left_));
  }

 private:
  Optimizer& optimizer_;
  std::int64_t left_;
};

TEST(SequentialLR, TakesAUsersClass) {
  const SchedulerSpec countdown = [](Optimizer& optimizer, const ScheduleContext& run) {
    return std::make_unique<Countdown>(optimizer, run.steps(Per::kBatch));
  };
  Schedule schedule(warmup(4, countdown), {.num_epochs = 2, .steps_per_epoch = 5});
  for (int i = 0; i < 5; ++i) schedule.scheduler->step();
  EXPECT_EQ(schedule.lr(), 5);
  Schedule resumed(warmup(4, countdown), {.num_epochs = 2, .steps_per_epoch = 5});
  resumed.scheduler->load_state(schedule.scheduler->state());
  EXPECT_EQ(resumed.lr(), 5);
}

// A function is asked only for the steps that it decides.
TEST(SequentialLR, DescribesAllItsParts) {
  const auto table = [](std::vector<double> factors) {
    return FunctionLR{.factor = [factors](std::int64_t step, const ScheduleContext&) {
      return factors.at(static_cast<std::size_t>(step));
    }};
  };
  const ScheduleContext run{.num_epochs = 100};
  const auto text = [&](const SchedulerSpec& spec) {
    return Schedule(spec, run).scheduler->describe();
  };
  const std::string one = text(chain({table({1, 0.5}), StepLR{.step_size = 2}}, {2}));
  EXPECT_NE(text(chain({table({1, 0.25}), StepLR{.step_size = 2}}, {2})), one);
  EXPECT_NE(text(chain({table({1, 0.5}), LinearLR{}}, {2})), one);
  EXPECT_EQ(text(chain({table({1, 0.5}), StepLR{.step_size = 2}}, {2})), one);
  // The last part of a chain ends with the chain.
  const SchedulerSpec inner = chain({LinearLR{}, table({1, 0.5})}, {2});
  EXPECT_NE(text(chain({inner, StepLR{.step_size = 2}}, {4})), "");
}

TEST(SequentialLR, NamesABadValue) {
  EXPECT_EQ(schedule_error(chain({}, {})),
            "scheduler SequentialLR: schedulers: expected at least one, got none");
  EXPECT_EQ(schedule_error(chain({LinearLR{}, LinearLR{}}, {})),
            "scheduler SequentialLR: milestones: expected 1 for 2 schedulers, got 0");
  EXPECT_EQ(schedule_error(chain({LinearLR{}, LinearLR{}, LinearLR{}}, {3, 3})),
            "scheduler SequentialLR: milestones: expected positive integers that increase, got "
            "[3, 3]");
  EXPECT_EQ(schedule_error(chain({LinearLR{}, StepLR{}}, {3})),
            "scheduler StepLR: step_size: expected a positive integer, got none")
      << "a later part is checked when the chain is made";
  EXPECT_EQ(schedule_error(chain({LinearLR{}, ReduceLROnPlateau{.per = Per::kBatch}}, {3})),
            "scheduler ReduceLROnPlateau: needs a loader's metric, so it cannot step after each "
            "batch");
  EXPECT_EQ(schedule_error(warmup(20, CosineAnnealingLR{.per = Per::kBatch}),
                           {.num_epochs = 3, .steps_per_epoch = 4}),
            "scheduler CosineAnnealingLR: the run is over before it begins: it comes after 20 "
            "updates, and the run has 12");
  Schedule two(chain({LinearLR{}, StepLR{.step_size = 1}}, {1}));
  two.scheduler->step();
  Schedule one(chain({LinearLR{}}, {}));
  EXPECT_EQ(message_of<CheckpointError>([&] { one.scheduler->load_state(two.scheduler->state()); }),
            "scheduler SequentialLR: the checkpoint was made in scheduler 2 of a chain, this chain "
            "has 1");
}

}  // namespace
}  // namespace lockstep::optim
