#include "lockstep/callback/builtin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/progress_bar.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

// The callbacks that are added to those in `given`.
std::vector<std::string> names(TrainOptions options, const Callbacks& given = {}) {
  options.callbacks = given;
  std::vector<std::string> names;
  for (const auto& callback : with_builtin_callbacks(options)) names.push_back(callback->name());
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(given.size()));
  return names;
}

TEST(BuiltinCallbacks, AreThoseThatWereAskedFor) {
  EXPECT_THAT(names({}), testing::IsEmpty());
  EXPECT_THAT(names({.scheduler = optim::StepLR{.step_size = 1},
                     .logdir = "x",
                     .verbose = true,
                     .timeit = true,
                     .check = true,
                     .overfit = true}),
              testing::UnorderedElementsAre("SchedulerCallback", "CheckpointCallback",
                                            "ProgressBarCallback", "TimerCallback",
                                            "CheckRunCallback", "BatchOverfitCallback"));
}

TEST(BuiltinCallbacks, TheProgressBarIsOfTheKindThatWasAskedFor) {
  for (const auto bars : {ProgressBars::kPasses, ProgressBars::kRun}) {
    const Callbacks added = with_builtin_callbacks({.verbose = true, .progress_bars = bars});
    ASSERT_EQ(added.size(), 1U);
    const auto* const bar = dynamic_cast<const ProgressBarCallback*>(added.begin()->get());
    ASSERT_NE(bar, nullptr);
    EXPECT_EQ(bar->bars(), bars);
  }
}

TEST(BuiltinCallbacks, AreNotAddedBesideTheUsersOwn) {
  EXPECT_THAT(names({.logdir = "x"}, {CheckpointCallback({.save_n_best = 3})}), testing::IsEmpty());
}

TEST(BuiltinCallbacks, SettingsOfOptimizersFreezeParameters) {
  const auto frozen = [](const TrainOptions& options) {
    const Callbacks added = with_builtin_callbacks(options);
    return added.empty() ? "" : (*added.begin())->agreed_options();
  };
  TrainOptions options;
  options.model = toy::model();
  EXPECT_EQ(frozen(options), "") << "an optimizer is missed later";
  options.optimizer = {optim::Adam{},
                       {{.names = "*", .frozen = true}, {.names = "4.*", .frozen = false}}};
  const auto all_but_the_last = testing::HasSubstr("names=[0.weight, 0.bias, 1.weight, 1.bias]");
  EXPECT_THAT(frozen(options), all_but_the_last);
  options.optimizer = optim::Lookahead{.optimizer = options.optimizer};
  EXPECT_THAT(frozen(options), all_but_the_last);
  options.optimizers = {{"model", options.optimizer}};
  options.optimizer = {};
  EXPECT_THAT(frozen(options), all_but_the_last);
  options.models = {{"a", options.model}, {"b", toy::model()}};
  options.model = {};
  options.optimizers = {{"a", {optim::Adam{}, {{.names = "*.weight", .frozen = true}}}},
                        {"b", optim::Adam{}}};
  EXPECT_THAT(frozen(options), testing::HasSubstr("names=[a.0.weight, a.1.weight, a.4.weight]"));
  options.optimizers.set("b", {optim::Adam{}, {{.names = "*", .frozen = true}}});
  EXPECT_THAT(toy::error_of([&] { frozen(options); }),
              testing::HasSubstr("optimizers/b: its settings freeze all parameters"));
}

TEST(BuiltinCallbacks, TwoCheckpointsNeedTwoFolders) {
  EXPECT_THROW(names({}, {CheckpointCallback(), CheckpointCallback()}), ConfigError);
  EXPECT_NO_THROW(names({}, {CheckpointCallback(), CheckpointCallback({.folder = "elsewhere"})}));
  // The same folder under another name.
  EXPECT_THROW(names({.logdir = "run"},
                     {CheckpointCallback(), CheckpointCallback({.folder = "./run/checkpoints"})}),
               ConfigError);
}

}  // namespace
}  // namespace lockstep
