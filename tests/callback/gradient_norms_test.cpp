#include "lockstep/callback/gradient_norms.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TrainOptions measured(const GradientNormsCallbackOptions& norms) {
  TrainOptions options = toy::options();
  options.callbacks.add(GradientNormsCallback(norms));
  options.log_gradient_norm = true;
  return options;
}

// The squares of the norms of all parameters add up to the norm of all gradients, in a single step.
TEST(GradientNorms, AreThoseOfTheParameters) {
  for (const auto by : {NormsBy::kParameter, NormsBy::kModule}) {
    TrainOptions options = measured({.by = by});
    options.num_steps = 1;
    options.num_epochs = 1;
    const Metrics train = toy::train(options).last_metrics.at("train");
    double squares = 0;
    int count = 0;
    for (const auto& [name, value] : train) {
      if (!name.starts_with("gradient_norm/")) continue;
      squares += value * value;
      ++count;
    }
    EXPECT_EQ(count, by == NormsBy::kModule ? 3 : 6);
    EXPECT_NEAR(std::sqrt(squares), train.at("gradient/norm"), 1e-6);
  }
}

TEST(GradientNorms, DoNotChangeTheTraining) {
  TrainOptions plain = toy::options();
  plain.clip_grad_norm = 0.1;
  TrainOptions observed = measured({});
  observed.clip_grad_norm = 0.1;
  EXPECT_EQ(toy::train(observed).weights_hash, toy::train(plain).weights_hash);
}

TEST(GradientNorms, OnlyTheNamedParametersAndEveryThirdUpdate) {
  const Metrics all = toy::train(measured({})).last_metrics.at("train");
  const Metrics some =
      toy::train(measured({.names = {"4.*"}, .every = 3})).last_metrics.at("train");
  EXPECT_FALSE(some.contains("gradient_norm/0.weight"));
  EXPECT_NE(some.at("gradient_norm/4.weight"), all.at("gradient_norm/4.weight"));
}

TEST(GradientNorms, SameBitsForAnyNumberOfWorkersAndResumedAndRecovered) {
  toy::expect_same_average([] {
    return std::make_shared<GradientNormsCallback>(GradientNormsCallbackOptions{.every = 2});
  });
}

TEST(GradientNorms, WhatCannotWorkIsRefused) {
  EXPECT_THAT(toy::error_of([] { GradientNormsCallback callback({.every = 0}); }),
              HasSubstr("every: expected 1 or more, got 0"));
  EXPECT_THAT(toy::error_of([] { toy::train(measured({.names = {"x.*"}})); }),
              HasSubstr("GradientNormsCallback: names: 'x.*' matches no parameter"));
}

}  // namespace
}  // namespace lockstep
