#include "lockstep/log/main_metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// The metrics of the callbacks of examples/mnist, with timeit.
Metrics of_classification() {
  Metrics metrics = {{"loss", 0.5},       {"loss/std", 0.1},       {"lr", 0.02},
                     {"momentum", 0.9},   {"accuracy01", 0.8},     {"accuracy01/std", 0.07},
                     {"accuracy03", 0.9}, {"accuracy03/std", 0.1}, {"accuracy05", 0.99},
                     {"auc", 0.97},       {"auc/_macro", 0.97},    {"auc/_micro", 0.96},
                     {"auc/class_00", 1}, {"_timer/_fps", 1000}};
  for (const char* const metric : {"precision", "recall", "f1"}) {
    for (const char* const average : {"_micro", "_macro", "_weighted"}) {
      metrics[fmt::format("{}/{}", metric, average)] = 0.8;
    }
  }
  return metrics;
}

TEST(MainMetrics, HaveNoNumberTwice) {
  EXPECT_THAT(main_metrics(of_classification(), {"loss"}),
              ElementsAre("loss", "accuracy01", "auc", "f1/_macro", "_timer/_fps"));
}

TEST(MainMetrics, WhatWasAskedForComesFirstWhateverItIsCalled) {
  EXPECT_THAT(main_metrics(of_classification(), {"loss", "recall/_macro", "accuracy03", "none"}),
              ElementsAre("loss", "recall/_macro", "accuracy03", "accuracy01", "auc", "f1/_macro",
                          "_timer/_fps"));
}

// `first` is often a temporary, and gone when the names are used.
TEST(MainMetrics, NamesLiveAsLongAsTheMetrics) {
  const Metrics metrics = {{"loss", 0.5}};
  const auto names = main_metrics(metrics, {"loss"});
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(names[0].data(), metrics.begin()->first.data());
}

TEST(MainMetrics, OnesOwnAreShown) {
  const Metrics metrics = {{"my_metric", 1}, {"accuracy", 2}, {"accuracy_b", 3}};
  EXPECT_THAT(main_metrics(metrics, {"loss"}), ElementsAre("accuracy", "accuracy_b", "my_metric"));
}

}  // namespace
}  // namespace lockstep
