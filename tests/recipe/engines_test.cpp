#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"
#include "lockstep/runner/self_supervised.h"
#include "lockstep/runner/supervised.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Engines, OptionsReachThem) {
  const auto ddp =
      targets().engines.make(node("{DistributedDataParallelEngine: {workers: 2, shards: 4, "
                                  "threads: 1, timeout: 1.5, device: cpu}}"));
  EXPECT_EQ(ddp->workers(), 2);
  EXPECT_EQ(ddp->shards(), 4);
  EXPECT_EQ(targets().engines.make(node("{DeviceEngine: {device: cpu}}"))->workers(), 1);
}

TEST(Engines, RefuseWhatCannotBe) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().engines.make(node(text)); });
  };
  EXPECT_THAT(error("{DistributedDataParallelEngine: {workers: 0}}"), HasSubstr("workers"));
  EXPECT_THAT(error("{DistributedDataParallelEngine: {workers: 4, shards: 2}}"),
              HasSubstr("shards"));
  EXPECT_THAT(error("{DistributedDataParallelEngine: {backend: tcp}}"), HasSubstr("backend"));
  EXPECT_THAT(error("{DistributedDataParallelEngine: {reduction: quick}}"),
              HasSubstr("expected ordered or fast, got 'quick'"));
}

TEST(Runners, TakeListsOfKeysAndLosses) {
  const auto made = targets().runners.make(
      node("{SupervisedRunner: {input_keys: [a, b], output_keys: [c, d], losses: "
           "[{output: c, target: t}, {criterion: l1, output: d, target: u, weight: 0.5}]}}"));
  const auto* const runner = dynamic_cast<const SupervisedRunner*>(made.get());
  ASSERT_NE(runner, nullptr);
  EXPECT_THAT(runner->keys().input_keys, ::testing::ElementsAre("a", "b"));
  ASSERT_EQ(runner->keys().losses.size(), 2U);
  EXPECT_EQ(runner->keys().losses[1],
            (LossTerm{.criterion = "l1", .output = "d", .target = "u", .weight = 0.5}));
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().runners.make(node(text)); });
  };
  EXPECT_THAT(error("{SupervisedRunner: {losses: [{ouput: c}]}}"), HasSubstr("output"));
  EXPECT_THAT(error("{SupervisedRunner: {input_key: x, input_keys: [a]}}"), HasSubstr("input_key"));
}

TEST(Runners, SelfSupervisedTakesPrefixesAndAnAugmentation) {
  const auto made = targets().runners.make(
      node("{SelfSupervisedRunner: {projection_prefix: z, augment: Flatten}}"));
  const auto* const runner = dynamic_cast<const SelfSupervisedRunner*>(made.get());
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(runner->keys().projection_prefix, "z");
  EXPECT_TRUE(runner->keys().augment);
  EXPECT_THAT(
      error_of([] { targets().runners.make(node("{SelfSupervisedRunner: {loss_key: augment}}")); }),
      HasSubstr("'augment' is there twice"));
}

TEST(Runners, AndLoggers) {
  EXPECT_NE(targets().runners.make(node("{SupervisedRunner: {output_key: scores}}")), nullptr);
  EXPECT_NE(targets().loggers.make(node("{CsvLogger: {logdir: /tmp}}")), nullptr);
  EXPECT_THAT(error_of([] { targets().loggers.make(node("TensorBoardLogger")); }),
              HasSubstr("logdir is missing"));
}

}  // namespace
}  // namespace lockstep::recipe
