// What a series writes in a run is in tests/callback/checkpoint_test.cpp.
#include "lockstep/train/checkpoint_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/train/checkpointer.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

State state_with_loss() {
  State state;
  state.loaders = toy::loaders();
  state.known_metrics = {"loss", "mine"};
  state.better = [](std::string_view metric) {
    return metric == "loss" ? std::optional(Better::kSmaller) : std::nullopt;
  };
  return state;
}

TEST(CheckCheckpoints, NeedAFolderAndAMetricWithADirection) {
  State state = state_with_loss();
  EXPECT_THAT(toy::error_of([&] { check_checkpoints({}, state); }), HasSubstr("logdir"));
  state.logdir = "run";
  EXPECT_EQ(toy::error_of([&] { check_checkpoints({}, state); }), "");
  const auto by = [](const char* metric) {
    return CheckpointOptions{.metric = MetricKey{"valid", metric}};
  };
  EXPECT_EQ(toy::error_of([&] { check_checkpoints(by("loss"), state); }), "");
  EXPECT_THAT(toy::error_of([&] { check_checkpoints(by("los"), state); }), HasSubstr("'loss'"));
  EXPECT_THAT(toy::error_of([&] { check_checkpoints(by("mine"), state); }),
              HasSubstr("its minimize"));
}

TEST(CheckCheckpoints, RefuseWhatMakesNoSense) {
  EXPECT_THROW(check_checkpoints({.save_n_best = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_batches = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_batches = 1, .mode = CheckpointMode::kModel}),
               ConfigError);
  EXPECT_NO_THROW(check_checkpoints({.save_every_batches = 1}));
}

// A callback of the user's opens its own series and decides when it saves.
TEST(CheckpointSeries, IsOpenToOtherCallbacks) {
  const TemporaryDirectory folder;
  struct Every : Callback {
    explicit Every(std::filesystem::path folder) : folder(std::move(folder)) {}
    void on_run_start(State& state) override {
      series = &state.checkpointer->open({.folder = folder, .save_n_best = 5}, std::nullopt);
    }
    void on_epoch_end(State& state) override {
      if (state.progress.epoch != 2) series->after_epoch();
    }
    std::filesystem::path folder;
    CheckpointSeries* series = nullptr;
  };
  TrainOptions options = toy::options();
  options.callbacks = {Every(folder / "mine")};
  const auto result = toy::train(options);
  EXPECT_TRUE(std::filesystem::exists(folder / "mine/epoch.0001.pth"));
  EXPECT_FALSE(std::filesystem::exists(folder / "mine/epoch.0002.pth"));
  EXPECT_EQ(*result.last_checkpoint, folder / "mine/last.pth");
}

}  // namespace
}  // namespace lockstep
