#include "lockstep/callback/batch_transform.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const data::Lambda kNoise([](const torch::Tensor& x) { return x + 0.1 * torch::randn_like(x); });

TEST(BatchTransform, TheModelGetsTheTransformedTensor) {
  TrainOptions options = toy::options();
  options.callbacks = {
      BatchTransformCallback({.transform = data::Lambda([](const auto& x) { return x * 0; })}),
      on_forward([](State& s) {
        EXPECT_EQ(s.batch["features"].abs().max().item<float>(), 0);
        if (!s.is_train) {
          EXPECT_TRUE(s.batch["logits"][0].equal(s.batch["logits"][1])) << "the same input";
        }
      })};
  toy::train(options);
}

TEST(BatchTransform, PutsTheResultUnderAnotherKey) {
  TrainOptions options = toy::options();
  int calls = 0;
  options.callbacks = {
      BatchTransformCallback({.transform = data::Cast(torch::kFloat64), .output_key = "wide"}),
      on_batch_start([&](State& s) {
        ++calls;
        EXPECT_EQ(s.batch["wide"].scalar_type(), torch::kFloat64);
        EXPECT_EQ(s.batch["features"].scalar_type(), torch::kFloat32);
      })};
  toy::train(options);
  EXPECT_GT(calls, 0);
}

// The accuracy of the labels themselves is 1.
TEST(BatchTransform, MetricsGetWhatItMakesOfTheOutputs) {
  TrainOptions options = toy::options();
  options.callbacks = {
      AccuracyCallback({.input_key = "answer", .num_classes = 3}),
      BatchTransformCallback(
          {.batch_transform =
               [](Batch& batch) {
                 EXPECT_TRUE(batch.contains("logits"));
                 batch.set("answer", torch::one_hot(batch["targets"], 3).to(torch::kFloat32));
               },
           .scope = BatchScope::kForward})};
  EXPECT_EQ(toy::train(options).last_metrics.at("valid").at("accuracy01"), 1);
}

TEST(BatchTransform, MayBeLimitedToSomeLoaders) {
  const auto valid_loss = [](const Callbacks& callbacks) {
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    options.optimizer = optim::SGD{.lr = 1e-9};
    options.callbacks = callbacks;
    return toy::train(options).last_metrics.at("valid").at("loss");
  };
  const BatchTransformCallback far(
      {.transform = data::Lambda([](const torch::Tensor& x) { return x * 100; })});
  const double all = valid_loss({far});
  const double train_only = valid_loss({ControlFlowCallback(far, {.loaders = {"train"}})});
  EXPECT_NE(all, train_only);
}

TEST(BatchTransform, RandomNumbersAreTheSameForAnyNumberOfWorkers) {
  const auto hash = [](int workers, bool noise) {
    TrainOptions options = toy::options();
    if (noise) options.callbacks = {BatchTransformCallback({.transform = kNoise})};
    options.engine = std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
        .workers = workers, .shards = 2, .timeout = std::chrono::seconds(60)});
    return toy::train(options).weights_hash;
  };
  EXPECT_EQ(hash(1, true), hash(2, true));
  EXPECT_NE(hash(1, true), hash(1, false));
}

TEST(BatchTransform, RefusesWhatMakesNoSense) {
  const auto refused = [](const BatchTransformCallbackOptions& options) {
    return toy::error_of([&] { BatchTransformCallback callback(options); });
  };
  EXPECT_THAT(refused({}), HasSubstr("got none"));
  EXPECT_THAT(refused({.transform = kNoise, .batch_transform = [](Batch&) {}}),
              HasSubstr("got both"));
  EXPECT_THAT(refused({.batch_transform = [](Batch&) {}, .output_key = "x"}),
              HasSubstr("output_key 'x'"));
}

}  // namespace
}  // namespace lockstep
