#include "lockstep/callback/histograms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Logged {
  std::string tag;
  Histogram histogram;
  std::int64_t step = 0;

  bool operator==(const Logged&) const = default;
};

// Keeps the histograms that a run logs.
struct Keeper : Logger {
  std::vector<Logged> logged;

  void log_metrics(const Record&) override {}
  void log_histogram(const std::string& loader, const std::string& tag, const Histogram& histogram,
                     const Progress& progress) override {
    EXPECT_EQ(loader, "train");
    logged.push_back({tag, histogram, progress.update_step});
  }
};

std::vector<Logged> logged_by(TrainOptions options) {
  const auto keeper = std::make_shared<Keeper>();
  options.loggers.push_back(keeper);
  toy::train(options);
  return keeper->logged;
}

TrainOptions shown(const HistogramsCallbackOptions& histograms, int workers = 1) {
  return toy::averaged_options([&] { return std::make_shared<HistogramsCallback>(histograms); },
                               workers);
}

std::vector<std::int64_t> steps_of(const std::vector<Logged>& logged) {
  std::vector<std::int64_t> steps;
  for (const auto& one : logged) steps.push_back(one.step);
  return steps;
}

TEST(Histograms, OfWeightsAndGradientsAfterEpochs) {
  TrainOptions options = shown({.names = {"4.bias"}, .every_epochs = 2});
  options.num_epochs = 4;
  torch::Tensor bias;
  options.callbacks.add(on_epoch_end([&](State& s) {
    if (s.progress.epoch == 4) bias = s.model.state().get<torch::Tensor>("4.bias");
  }));
  const auto logged = logged_by(options);
  ASSERT_THAT(steps_of(logged), ElementsAre(6, 6, 12, 12));
  EXPECT_EQ(logged[0].tag, "gradients/4.bias");
  EXPECT_EQ(logged[3].tag, "weights/4.bias");
  EXPECT_EQ(logged[3].histogram.num, 3);
  EXPECT_EQ(logged[3].histogram.max, bias.max().item<float>());
  EXPECT_NEAR(logged[3].histogram.sum, bias.sum().item<double>(), 1e-6);
}

TEST(Histograms, AfterSteps) {
  TrainOptions options = shown({.names = {"4.bias"}, .gradients = false, .every_steps = 4});
  EXPECT_THAT(steps_of(logged_by(options)), ElementsAre(4, 8));
}

TEST(Histograms, AreTheSameForAnyNumberOfWorkersAndResumedAndRecovered) {
  const HistogramsCallbackOptions histograms{.every_steps = 2};
  const auto straight = logged_by(shown(histograms));
  EXPECT_EQ(logged_by(shown(histograms, 2)), straight);
  toy::Warnings of_the_recovery;
  TrainOptions recovered = shown(histograms, 2);
  recovered.max_restarts = 1;
  recovered.callbacks.add(toy::cut_in("train"));
  EXPECT_EQ(logged_by(recovered), straight);
  TemporaryDirectory folder;
  TrainOptions first = shown(histograms);
  first.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  first.logdir = folder / "run";
  first.callbacks.add(toy::cut_in("train"));
  EXPECT_THAT(toy::error_of([&] { toy::train(first); }), HasSubstr("cut"));
  TrainOptions second = shown(histograms);
  second.logdir = folder / "run";
  second.resume = "last";
  const auto rest = logged_by(second);
  ASSERT_LT(rest.size(), straight.size());
  EXPECT_EQ(rest, std::vector<Logged>(straight.end() - static_cast<std::ptrdiff_t>(rest.size()),
                                      straight.end()));
}

TEST(Histograms, WhatCannotWorkIsRefused) {
  const auto error = [](const HistogramsCallbackOptions& histograms) {
    return toy::error_of([&] { HistogramsCallback callback(histograms); });
  };
  EXPECT_THAT(error({.weights = false, .gradients = false}), HasSubstr("got none"));
  EXPECT_THAT(error({.every_epochs = 0}), HasSubstr("every_epochs: expected 1 or more"));
  EXPECT_THAT(error({.every_steps = 0}), HasSubstr("every_steps: expected 1 or more"));
}

}  // namespace
}  // namespace lockstep
