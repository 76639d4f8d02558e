#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/command/trained.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Ran;
using testing::run_command;

class Evaluate : public testing::Trained {
 protected:
  Ran evaluate(std::vector<std::string> words) const {
    words.insert(words.begin(), {"evaluate", path("run")});
    return run_command(words);
  }
  nlohmann::json json(const std::string& name) const {
    return nlohmann::json::parse(read_file(path(name)));
  }
};

TEST_F(Evaluate, GivesTheMetricsThatTheRunHad) {
  train({testing::kAccuracy});
  const auto summary = json("run/summary.json");
  for (const char* const checkpoint : {"best", "last"}) {
    const Ran ran = evaluate({"--checkpoint", checkpoint, "--output", path("metrics.json")});
    ASSERT_EQ(ran.code, kDone) << ran.errors;
    EXPECT_THAT(ran.output, AllOf(HasSubstr("8 samples of loader 'valid'"), HasSubstr("loss "),
                                  HasSubstr("accuracy01")));
    const auto metrics = json("metrics.json");
    EXPECT_EQ(metrics["metrics"], summary[checkpoint]["metrics"]["valid"]);
    EXPECT_EQ(metrics["loader"], "valid");
    EXPECT_EQ(metrics["samples"], 8);
    EXPECT_EQ(metrics["checkpoint"], path(std::string("run/checkpoints/") + checkpoint + ".pth"));
  }
}

TEST_F(Evaluate, WithSeveralWorkersItGivesTheSameMetrics) {
  train({testing::kAccuracy});
  ASSERT_EQ(evaluate({"--output", path("one.json"), "loaders.valid.batch_size=2"}).code, kDone);
  ASSERT_EQ(
      evaluate({"--output", path("two.json"), "loaders.valid.batch_size=2", "--workers", "2"}).code,
      kDone);
  const auto one = json("one.json")["metrics"], two = json("two.json")["metrics"];
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [name, value] : one.items()) {
    EXPECT_NEAR(value.get<double>(), two.at(name).get<double>(), 1e-6) << name;
  }
}

// Such callbacks would be refused in an evaluation.
TEST_F(Evaluate, LeavesOutCallbacksOfTraining) {
  train(
      {"callbacks=[{EarlyStoppingCallback: {patience: 5}}, {AccuracyCallback: {num_classes: "
       "3}}]"});
  const Ran ran = evaluate({});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("accuracy01"));
}

TEST_F(Evaluate, AnyLoaderOfTheConfig) {
  train();
  const Ran ran = evaluate({"--loader", "train"});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("32 samples of loader 'train'"));
}

TEST_F(Evaluate, AWrongOutputIsFoundBeforeTheEvaluation) {
  train();
  const Ran ending = evaluate({"--output", path("metrics.yml")});
  EXPECT_EQ(ending.code, kBadUsage);
  EXPECT_THAT(ending.errors, HasSubstr(".json"));
  const Ran folder = evaluate({"--output", path("missing/metrics.json")});
  EXPECT_EQ(folder.code, kBadUsage);
  EXPECT_THAT(folder.errors, HasSubstr("no such folder"));
  EXPECT_EQ(run_command({"evaluate"}).code, kBadUsage);
}

}  // namespace
}  // namespace lockstep::command
