#include "lockstep/train/train_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/comm/local.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"
#include "tests/train/late_copies.h"

namespace lockstep {
namespace {

// A line through the origin, fitted by one step of SGD.
struct Line {
  torch::Tensor weight = torch::tensor({1.0, -2.0}, torch::kDouble).requires_grad_();
  comm::Local alone;
  Replica replica{{{"weight", weight}}, alone, {}};
  ModelBuffers buffers{{}, alone, {}};
  std::unique_ptr<optim::Optimizer> optimizer =
      optim::OptimizerSpec(optim::SGD{.lr = 0.1}).make(replica.parameters());

  DeviceEngine engine{{.device = torch::kCPU}};

  StepParts parts() {
    return {.trained = {{replica, *optimizer}}, .buffers = buffers, .engine = engine};
  }

  torch::Tensor loss(const torch::Tensor& x) const { return x.matmul(weight).square().mean(); }
};

const torch::Tensor kData =
    torch::tensor({{1.0, 2.0}, {3.0, -1.0}, {0.5, 0.25}, {2.0, 2.0}, {-1.0, 3.0}}, torch::kDouble);

// Adds one batch of one shard; a full shard would have two samples.
void add(TrainStep& step, const Line& line, const torch::Tensor& part) {
  step.begin_batch({.samples = part.size(0), .batch_size = 2});
  step.begin_shard(0, part.size(0));
  step.backward(line.loss(part), mean_over_samples(), part.size(0));
  step.end_shard(0);
}

torch::Tensor after_whole_batch(StepSettings settings = {}) {
  Line line;
  TrainStep step(line.parts(), settings);
  add(step, line, kData);
  Metrics metrics;
  step.update(metrics);
  return line.weight.detach().clone();
}

// As Mixup with `add` does it.
TEST(TrainStep, ATransformMayAddSamplesToABatch) {
  Line line;
  TrainStep step(line.parts(), {.accumulation_steps = 3});
  for (const auto& part : kData.split_with_sizes({2, 2, 1})) {
    const torch::Tensor twice = torch::cat({part, part});
    step.begin_batch({.samples = part.size(0), .batch_size = 2});
    step.begin_shard(0, part.size(0));
    step.backward(line.loss(twice), mean_over_samples(), twice.size(0));
    step.end_shard(0);
  }
  Metrics metrics;
  step.update(metrics);
  EXPECT_TRUE(torch::allclose(line.weight.detach(), after_whole_batch(), 1e-12));
}

TEST(TrainStep, AccumulatedBatchesOfAnySizeEqualTheWholeBatch) {
  Line line;
  TrainStep step(line.parts(), {.accumulation_steps = 3});
  for (const auto& part : kData.split_with_sizes({2, 2, 1})) {
    EXPECT_FALSE(step.due(false));
    add(step, line, part);
  }
  ASSERT_TRUE(step.due(false));
  EXPECT_FALSE(step.between_steps());
  Metrics metrics;
  step.update(metrics);
  EXPECT_TRUE(step.between_steps());
  EXPECT_TRUE(torch::allclose(line.weight, after_whole_batch(), 1e-12)) << line.weight;
}

TEST(TrainStep, TheLastBatchOfAPassEndsAWindow) {
  Line line;
  TrainStep step(line.parts(), {.accumulation_steps = 3});
  EXPECT_FALSE(step.due(true)) << "nothing to update with";
  add(step, line, kData);
  ASSERT_TRUE(step.due(true));
  Metrics metrics;
  step.update(metrics);
  EXPECT_TRUE(torch::allclose(line.weight, after_whole_batch(), 1e-12));
}

// The norm stays on the device, and the host reads it when it needs it.
TEST(TrainStep, TheNormOfADeviceComesLater) {
  for (const StepSettings& settings :
       {StepSettings{.clip_grad_norm = 0.5}, StepSettings{.log_gradient_norm = true}}) {
    Line line;
    LateCopies copies;
    StepParts parts = line.parts();
    parts.copies = &copies;
    TrainStep step(parts, settings);
    add(step, line, kData);
    Metrics metrics;
    std::vector<LateMetric> late;
    step.update(metrics, late);
    EXPECT_FALSE(metrics.contains("gradient/norm"));
    ASSERT_EQ(late.size(), 1U);
    EXPECT_EQ(late.front().name, "gradient/norm");
    EXPECT_THAT(copies.events, testing::ElementsAre("read"));
    EXPECT_TRUE(torch::allclose(line.weight, after_whole_batch(settings), 1e-12));

    Line other;
    TrainStep waits(other.parts(), settings);
    add(waits, other, kData);
    waits.update(metrics);
    const double norm = metrics.at("gradient/norm");
    EXPECT_NEAR(late.front().value->get().item<double>(), norm, 1e-12 * norm);
  }
}

// Computes what torch.nn.utils.clip_grad_norm_ does to the mean gradient.
TEST(TrainStep, ClipsTheNormOfTheMeanGradient) {
  auto weight = Line().weight.detach().clone().requires_grad_();
  kData.matmul(weight).square().mean().backward();
  const double norm = weight.grad().norm().item<double>();
  const auto expected = weight.detach() - 0.1 * weight.grad() * (0.5 / (norm + 1e-6));
  EXPECT_TRUE(torch::allclose(after_whole_batch({.clip_grad_norm = 0.5}), expected, 1e-12));

  Line line;
  TrainStep step(line.parts(), {.accumulation_steps = 2, .clip_grad_norm = 0.5});
  for (const auto& part : kData.split_with_sizes({4, 1})) add(step, line, part);
  Metrics metrics;
  step.update(metrics);
  EXPECT_TRUE(torch::allclose(line.weight, expected, 1e-12)) << "clipped once, not each batch";
  EXPECT_NEAR(metrics.at("gradient/norm"), norm, 1e-12 * norm);
}

TEST(TrainStep, ClipsTheValuesOfTheMeanGradient) {
  auto weight = Line().weight.detach().clone().requires_grad_();
  kData.matmul(weight).square().mean().backward();
  const auto expected = weight.detach() - 0.1 * weight.grad().clamp(-0.5, 0.5);
  EXPECT_TRUE(torch::allclose(after_whole_batch({.clip_grad_value = 0.5}), expected, 1e-12));
}

// The function gets the mean gradient in the shape of the parameter, not the sum of the batches.
TEST(TrainStep, AFunctionClipsTheMeanGradient) {
  auto weight = Line().weight.detach().clone().requires_grad_();
  kData.matmul(weight).square().mean().backward();
  const auto expected = weight.detach() - 0.1 * weight.grad().sign();
  Line line;
  std::vector<torch::Tensor> seen;
  const GradientFunction sign = [&](std::span<const torch::Tensor> gradients) {
    for (const auto& gradient : gradients) {
      seen.push_back(gradient.clone());
      gradient.sign_();
    }
  };
  TrainStep step(line.parts(),
                 {.accumulation_steps = 2, .clip_grad = sign, .log_gradient_norm = true});
  for (const auto& part : kData.split_with_sizes({4, 1})) add(step, line, part);
  Metrics metrics;
  step.update(metrics);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(torch::allclose(seen[0], weight.grad(), 1e-12)) << seen[0];
  EXPECT_TRUE(torch::allclose(line.weight, expected, 1e-12)) << line.weight;
  EXPECT_NEAR(metrics.at("gradient/norm"), weight.grad().norm().item<double>(), 1e-9)
      << "before clipping";
  // What the function left behind is no sign that backward() reached the parameter.
  line.replica.begin_shard(0, true);
  line.replica.end_shard(0);
  EXPECT_FALSE(line.replica.parameters().buffers()[0].slices[0].used);
}

TEST(TrainStep, TheNormIsAMetricWithoutClipping) {
  Line line;
  TrainStep step(line.parts(), {.log_gradient_norm = true});
  add(step, line, kData);
  Metrics metrics;
  step.update(metrics);
  EXPECT_GT(metrics.at("gradient/norm"), 0);
  EXPECT_TRUE(torch::equal(line.weight, after_whole_batch())) << "nothing is clipped";
  Line plain;
  TrainStep without(plain.parts(), {});
  add(without, plain, kData);
  Metrics none;
  without.update(none);
  EXPECT_FALSE(none.contains("gradient/norm"));
}

// A phase that takes place in every second batch makes at most half as many steps.
TEST(TrainStep, StepsOfAnEpochCountThePhasesBatches) {
  const data::Loaders loaders = {{"train", {toy::points(50), {.batch_size = 8}}},
                                 {"valid", {toy::points(50), {.batch_size = 8}}}};
  EXPECT_EQ(steps_per_epoch(loaders, 1, 1), 7);
  EXPECT_EQ(steps_per_epoch(loaders, 1, 1, 2), 4);
  EXPECT_EQ(steps_per_epoch(loaders, 2, 1, 2), 2);
}

TEST(TrainStep, RefusesSettingsWithoutMeaning) {
  Line line;
  const auto with = [&](StepSettings settings) {
    return toy::error_of([&] { TrainStep(line.parts(), settings); });
  };
  EXPECT_THAT(with({.accumulation_steps = 0}), testing::HasSubstr("accumulation_steps"));
  EXPECT_THAT(with({.clip_grad_norm = -1.0}), testing::HasSubstr("clip_grad_norm"));
  EXPECT_THAT(with({.clip_grad_value = std::nan("")}), testing::HasSubstr("clip_grad_value"));
  EXPECT_THAT(
      with({.clip_grad_norm = 1.0, .clip_grad = [](auto) {}}),
      testing::HasSubstr("clip_grad: expected one way of clipping, got clip_grad_norm = 1"));
}

// The batches make one update; each has a loss with its own kind of mean.
torch::Tensor after_batches(const std::vector<std::pair<torch::Tensor, LossOver>>& losses,
                            Line& line) {
  TrainStep step(line.parts(), {.accumulation_steps = static_cast<std::int64_t>(losses.size())});
  for (const auto& [loss, over] : losses) {
    step.begin_batch({.samples = 2, .batch_size = 2});
    step.begin_shard(0, 2);
    step.backward(loss, over, 2);
    step.end_shard(0);
  }
  Metrics metrics;
  step.update(metrics);
  return line.weight.detach().clone();
}

TEST(TrainStep, ALossCountsByWhatItIsAMeanOver) {
  Line line;
  const auto parts = kData.split_with_sizes({2, 3});
  const auto expected = after_whole_batch();
  const auto found = after_batches({{line.loss(parts[0]), mean_over(2)},
                                    {line.loss(parts[1]), mean_over(3)},
                                    {line.loss(parts[1]) * NAN, mean_over(0)}},
                                   line);
  EXPECT_TRUE(torch::allclose(found, expected, 1e-12)) << found;
}

// If the loss were skipped, the other workers would wait for this one in backward() of batch norm.
TEST(TrainStep, WithSyncBnALossWithoutAGradientIsRefused) {
  Line line;
  TrainStep step(line.parts(), {.shards = 2, .sync_bn = true});
  step.begin_batch({.samples = 2, .batch_size = 2});
  step.begin_shard(0, 2);
  EXPECT_THAT(toy::error_of([&] { step.backward(line.loss(kData) * NAN, mean_over(0), 2); }),
              testing::AllOf(testing::HasSubstr("sync_bn"), testing::HasSubstr("max(weight, 1)")));
}

TEST(TrainStep, SumsAreSummed) {
  Line line;
  const auto parts = kData.split_with_sizes({2, 3});
  const auto sum = [&](std::size_t i) { return parts[i].matmul(line.weight).square().sum(); };
  const auto found =
      after_batches({{sum(0), sum_over_samples()}, {sum(1), sum_over_samples()}}, line);
  auto weight = Line().weight.detach().clone().requires_grad_();
  kData.matmul(weight).square().sum().backward();
  EXPECT_TRUE(torch::allclose(found, weight.detach() - 0.1 * weight.grad(), 1e-12));
}

TEST(TrainStep, RefusesLossesThatHaveNoCommonGradient) {
  Line line;
  const auto loss = [&] { return line.loss(kData); };
  EXPECT_THAT(toy::error_of([&] {
                after_batches({{loss(), mean_over(2)}, {loss(), sum_over_samples()}}, line);
              }),
              testing::HasSubstr("sums and others are means"));
  const LossOver mixed{.kind = LossOver::Kind::kMixed};
  EXPECT_THAT(toy::error_of([&] {
                after_batches({{loss(), mixed}, {loss(), mixed}}, line);
              }),
              testing::HasSubstr("means over different things"));
  Line alone;
  EXPECT_TRUE(torch::allclose(after_batches({{alone.loss(kData), mixed}}, alone),
                              after_whole_batch(), 1e-12))
      << "a batch that is not split";
}

// Scales the loss, so that small gradients are not lost in a type with few digits. A power of two
// changes no digit.
template <typename Base>
struct Scaling : Base {
  using Base::Base;
  void backward(const torch::Tensor& loss, const torch::Tensor& gradient) override {
    Base::backward(loss * 1024, gradient);
  }
  double gradient_factor() const override { return 1.0 / 1024; }
};

TEST(TrainStep, AnEngineMayScaleTheLoss) {
  for (const auto limit : {std::optional<double>(), std::optional<double>(0.1)}) {
    TrainOptions options = toy::options();
    options.accumulation_steps = 3;
    options.clip_grad_norm = limit;
    options.clip_grad_value = limit;
    const auto plain = toy::train(options);
    options.model = toy::model();
    options.engine = std::make_shared<Scaling<DeviceEngine>>();
    const auto scaled = toy::train(options);
    EXPECT_EQ(scaled.weights_hash, plain.weights_hash);
    EXPECT_EQ(scaled.history, plain.history) << "also the norm of the gradients";
  }
}

TEST(TrainStep, AnEngineOfSeveralWorkersMayScaleTheLoss) {
  using Ddp = DistributedDataParallelEngine;
  const DistributedDataParallelOptions two{.workers = 2, .device = torch::kCPU, .threads = 1};
  const auto hash = [](std::shared_ptr<Engine> engine) {
    TrainOptions options = toy::options();
    options.engine = std::move(engine);
    return toy::train(options).weights_hash;
  };
  EXPECT_EQ(hash(std::make_shared<Scaling<Ddp>>(two)), hash(std::make_shared<Ddp>(two)));
}

// Notes the calls of the hooks: f, b, and one for each side of a step.
struct Noting : DeviceEngine {
  void forward(const std::function<void()>& body) override {
    calls += 'f';
    DeviceEngine::forward(body);
    calls += '.';
  }
  void backward(const torch::Tensor& loss, const torch::Tensor& gradient) override {
    calls += 'b';
    DeviceEngine::backward(loss, gradient);
  }
  void before_step() override { note('<'); }
  void after_step() override { note('>'); }
  void note(char side) {
    calls += side;
    weights.push_back(model.parameters()[0].second.detach().clone());
  }

  Model model;
  std::string calls;
  std::vector<torch::Tensor> weights;
};

TEST(TrainStep, CallsTheHooksOfTheEngine) {
  const auto engine = std::make_shared<Noting>();
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.accumulation_steps = 4;  // of seven batches
  options.engine = engine;
  engine->model = options.model;
  SupervisedRunner runner;
  runner.train(options);
  EXPECT_EQ(engine->calls, "f.bf.bf.bf.b<>f.bf.bf.b<>f.f.f.") << "and three to validate";
  ASSERT_EQ(engine->weights.size(), 4U);
  EXPECT_FALSE(engine->weights[0].equal(engine->weights[1])) << "the step is in between";
  EXPECT_TRUE(engine->weights[1].equal(engine->weights[2]));

  engine->calls.clear();
  runner.predict_loader({.loader = options.loaders.at("valid"), .engine = engine}).next();
  EXPECT_EQ(engine->calls, "f.");
  runner.predict_loader({.loader = options.loaders.at("valid"), .engine = engine}, [](Batch&) {});
  EXPECT_EQ(engine->calls, "f.f.f.f.");
}

}  // namespace
}  // namespace lockstep
