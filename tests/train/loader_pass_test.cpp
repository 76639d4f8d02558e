#include "lockstep/train/loader_pass.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
#include "tests/support/toy.h"
#include "tests/train/late_copies.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// Evaluates a loader of 1, 2, … 10 with a "model" that returns its input.
struct PassTest : testing::Test {
  PassTest() {
    const auto values = torch::arange(1.0, 11.0).unsqueeze(1);
    auto dataset = std::make_shared<data::TensorDataset>(values, values);
    state.model = torch::nn::Sequential(torch::nn::Identity());
    state.engine = std::make_shared<DeviceEngine>();
    state.comm = &alone;
    state.loaders.set("valid", {dataset, {.batch_size = 4}});
  }

  void run(std::int64_t first_batch = 0, StateDict averages = {}) {
    LoaderPass pass(state, callbacks, handle, {}, profiler, settings);
    if (first_batch > 0) pass.load_averages(averages);
    pass.run({.loader = "valid", .window = {.first_batch = first_batch}});
    saved = pass.averages();
  }

  comm::Local alone;
  State state;
  std::vector<CallbackPtr> callbacks;
  std::function<void(State&)> handle = [](State& s) {
    s.batch.set("loss", s.batch["features"].mean());
    s.batch_metrics["size"] = static_cast<double>(s.batch.size());
  };
  Profiler profiler{false};
  PassSettings settings;
  StateDict saved;
};

TEST_F(PassTest, AveragesAreWeightedBySamples) {
  run();
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), 5.5) << "a mean of means would be 6.17";
  EXPECT_FALSE(state.loader_metrics.contains("loss/mean")) << "one name for one number";
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("size"), (4 * 4 + 4 * 4 + 2 * 2) / 10.0);
}

// One record for each batch, and not for each of its shards.
TEST_F(PassTest, LogsTheMeanOfABatchOverItsShards) {
  struct Losses final : Logger {
    void log_metrics(const Record& record) override {
      noted.emplace_back(*record.step, record.metrics.at("loss"));
    }
    std::vector<std::pair<std::int64_t, double>> noted;
  };
  const auto logger = std::make_shared<Losses>();
  state.loggers = {logger};
  state.progress.epoch = 1;
  settings.log_batches = true;
  settings.shards = 2;
  run();
  EXPECT_THAT(logger->noted, ElementsAre(std::pair(8, 4.5), std::pair(10, 9.5)));
  logger->noted.clear();
  settings.shards = 1;
  run();
  EXPECT_THAT(logger->noted, ElementsAre(std::pair(4, 2.5), std::pair(8, 6.5), std::pair(10, 9.5)));
}

TEST_F(PassTest, CountsBatchesAndSamples) {
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) { seen.emplace_back(s.loader_batch, s.loader_samples); };
  callbacks = {hooks};
  run();
  EXPECT_THAT(seen, ElementsAre(std::pair(1, 4), std::pair(2, 8), std::pair(3, 10)));
  EXPECT_EQ(state.loader_batches, 3);
  EXPECT_EQ(state.loader_sample_count, 10);
}

TEST_F(PassTest, ARequestEndsItAfterTheBatch) {
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) {
    if (s.loader_batch == 2) s.request_loader_end();
  };
  callbacks = {hooks};
  run();
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), 4.5);
}

TEST_F(PassTest, GoesOnInTheMiddleWithTheSameResult) {
  auto stop = std::make_shared<toy::Hooks>();
  stop->batch_end = [](State& s) { s.request_loader_end(); };
  callbacks = {stop};
  run();
  callbacks = {};
  state.loader_end_requested = false;
  run(1, saved);
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), 5.5);
}

TEST_F(PassTest, RunningMetricsShowThePassSoFar) {
  std::vector<double> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) { seen.push_back(s.running_metrics().at("loss")); };
  callbacks = {hooks};
  run();
  EXPECT_THAT(seen, ElementsAre(2.5, 4.5, 5.5));
}

// A data set that is slower than the model.
struct SlowSamples : data::Dataset {
  std::int64_t size() const override { return 10; }
  Batch sample(std::int64_t index) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {{"features", torch::tensor({static_cast<float>(index)})}};
  }
};

TEST_F(PassTest, WarnsOnceOfASlowLoader) {
  state.loaders.set("valid", {std::make_shared<SlowSamples>(), {.batch_size = 2}});
  settings.judged_seconds = 0.001;
  toy::Warnings warnings;
  LoaderPass pass(state, callbacks, handle, {}, profiler, settings);
  for (int epoch = 0; epoch < 3; ++epoch) pass.run({.loader = "valid"});
  EXPECT_THAT(warnings.texts, ElementsAre(testing::HasSubstr("were spent waiting for batches")));
}

TEST_F(PassTest, DoesNotJudgeShortPassesAndFastLoaders) {
  toy::Warnings warnings;
  state.loaders.set("valid", {std::make_shared<SlowSamples>(), {.batch_size = 2}});
  run();
  state.loaders.set("valid", {toy::points(10), {.batch_size = 2}});
  settings.judged_seconds = 0.001;
  handle = [](State&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  run();
  EXPECT_THAT(warnings.texts, testing::IsEmpty());
}

TEST_F(PassTest, NothingRecordsGradientsInEvaluation) {
  state.model = toy::model();
  state.loaders.set("valid", {toy::points(10), {.batch_size = 4}});
  handle = [](State& s) {
    EXPECT_FALSE(s.model(s.batch["features"]).requires_grad());
    EXPECT_FALSE(torch::GradMode::is_enabled());
  };
  run();
}

// Batches of 4, 4 and 2 samples. The first two have the weights 1 and 3, nothing counts in the
// last.
TEST_F(PassTest, AveragesAreOverWhatWasSaid) {
  handle = [](State& s) {
    const double weight[] = {1, 3, 0};
    const auto over = mean_over(weight[s.loader_batch - 1]);
    s.set_loss(s.loader_batch == 3 ? torch::tensor(NAN) : s.batch["features"].mean(), over);
    s.set_metric("mine", static_cast<double>(s.loader_batch), over);
  };
  run();
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), (1 * 2.5 + 3 * 6.5) / 4);
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("mine"), (1 * 1.0 + 3 * 2.0) / 4);
}

TEST_F(PassTest, ASumIsShownPerSample) {
  handle = [](State& s) { s.set_loss(s.batch["features"].sum(), sum_over_samples()); };
  run();
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), 5.5);
}

// Every phase sees every batch in evaluation, also one that trains in every second batch only.
TEST_F(PassTest, TheLossIsTheSumOfThoseOfThePhases) {
  settings.phases = {Phase{.name = "a"}, Phase{.name = "b", .every = 2}};
  std::vector<double> seen;
  std::vector<std::string> hooks_of;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) { hooks_of.push_back("start" + s.phase); };
  hooks->forward = [&](State& s) { hooks_of.push_back("forward " + s.phase); };
  hooks->batch_end = [&](State& s) {
    hooks_of.push_back("end" + s.phase);
    seen.push_back(s.batch_metrics.at("loss"));
  };
  callbacks = {hooks};
  handle = [](State& s) {
    EXPECT_FALSE(s.batch.contains("loss")) << "that of an earlier phase";
    const auto mean = s.batch["features"].mean();
    if (s.phase == "a") {
      s.batch.set("made", mean);
      s.set_loss(mean, mean_over(s.loader_batch == 1 ? 1 : 0));
    } else {
      s.set_loss(10 * s.batch["made"]);
    }
  };
  run();
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss/a"), 2.5) << "the first batch alone counts";
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss/b"), 55);
  EXPECT_DOUBLE_EQ(state.loader_metrics.at("loss"), 2.5 + 55);
  EXPECT_THAT(seen, ElementsAre(2.5 + 25, 65, 95));
  hooks_of.resize(4);
  EXPECT_THAT(hooks_of, ElementsAre("start", "forward a", "forward b", "end"));
}

TEST_F(PassTest, AnErrorNamesThePhase) {
  settings.phases = {Phase{.name = "a"}, Phase{.name = "b"}};
  handle = [](State& s) {
    if (s.phase == "b") throw Error("boom");
  };
  LoaderPass pass(state, callbacks, handle, {}, profiler, settings);
  EXPECT_EQ(toy::error_of([&] { pass.run({.loader = "valid"}); }), "boom");
  EXPECT_EQ(pass.failed_in(), "loader 'valid', batch 1, phase 'b'");
}

TEST_F(PassTest, ALossOfNothingIsNotANumber) {
  handle = [](State& s) { s.set_loss(torch::tensor(0.0), mean_over(0)); };
  run();
  EXPECT_TRUE(std::isnan(state.loader_metrics.at("loss")));
}

// What a device that is late must not change. The batches are those of PassTest.
struct LatePassTest : PassTest {
  LatePassTest() {
    // The global generator makes a batch, and a callback draws from it at the end of a batch.
    const data::Loader plain = state.loaders.at("valid");
    const auto noisy = [](std::vector<Batch>&& samples) {
      std::vector<torch::Tensor> rows;
      for (const Batch& sample : samples) rows.push_back(sample["features"]);
      const torch::Tensor stacked = torch::stack(rows);
      return Batch{{"features", stacked + torch::rand_like(stacked)}};
    };
    state.loaders.set("train", {plain.dataset(), {.batch_size = 4, .collate = noisy}});
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [this](State& s) {
      seen.push_back(s.batch_metrics.at("loss"));
      if (s.batch_metrics.contains("gradient/norm")) {
        seen.push_back(s.batch_metrics.at("gradient/norm"));
      }
      seen.push_back(torch::rand({}).item<double>());
      copies.events.emplace_back("end");
    };
    callbacks = {hooks};
    handle = [this](State& s) {
      const torch::Tensor noise = torch::rand({});
      s.batch.set("loss", (s.batch["features"].mean() * weight * noise).square().sum());
      if (s.loader_batch == bad) s.batch.set("loss", s.batch["loss"] / 0);
    };
  }

  void train(bool late) {
    const torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
    {
      const torch::NoGradGuard no_grad;
      layer->weight.copy_(torch::tensor({{1.0F, -2.0F}}));
    }
    state.model = torch::nn::Sequential(layer);
    weight = layer->weight;
    seen.clear();
    copies.events.clear();
    settings.copies = late ? &copies : nullptr;
    Replica replica({{"weight", weight}}, alone, {});
    ModelBuffers buffers({}, alone, {});
    const auto optimizer = optim::OptimizerSpec(optim::SGD{.lr = 0.01}).make(replica.parameters());
    std::vector<TrainStep> steps;
    steps.emplace_back(StepParts{.trained = {{replica, *optimizer}},
                                 .buffers = buffers,
                                 .engine = *state.engine,
                                 .copies = settings.copies},
                       StepSettings{.clip_grad_norm = 0.5});
    LoaderPass pass(state, callbacks, handle, steps, profiler, settings);
    pass.run({.loader = "train"});
  }

  torch::Tensor weight;
  std::int64_t bad = -1;
  std::vector<double> seen;
  LateCopies copies;
};

TEST_F(LatePassTest, ATrainedPassIsTheSame) {
  train(false);
  const std::vector<double> expected = seen;
  const torch::Tensor trained = weight.detach().clone();
  EXPECT_THAT(copies.events, testing::Each("end")) << "nothing is copied";
  train(true);
  // The norm is summed in another order, and the gradients are clipped by another multiplication.
  ASSERT_EQ(seen.size(), 9U);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 1e-5) << i;
  EXPECT_EQ(seen[0], expected[0]);
  EXPECT_EQ(seen[2], expected[2]) << "what a callback draws";
  EXPECT_TRUE(torch::allclose(weight, trained, 1e-6));
}

// The device gets the next batch and all work of this one before the host waits for its numbers.
TEST_F(LatePassTest, TheNextBatchIsOnItsWayBeforeTheHostWaits) {
  train(true);
  EXPECT_THAT(copies.events, ElementsAre("send", "take",                 // batch 1
                                         "read", "read",                 // loss and norm
                                         "send", "wait", "wait", "end",  // batch 2 is sent
                                         "take", "read", "read",         // and computed
                                         "send", "wait", "wait", "end",  //
                                         "take", "read", "read",         // batch 3
                                         "wait", "wait", "end"));
}

TEST_F(LatePassTest, AnErrorOfTheDeviceNamesTheBatch) {
  copies.error = "the device is gone";
  settings.copies = &copies;
  LoaderPass pass(state, callbacks, handle, {}, profiler, settings);
  weight = torch::tensor({1.0F, -2.0F});
  EXPECT_EQ(toy::error_of([&] { pass.run({.loader = "train"}); }), "the device is gone");
  EXPECT_EQ(pass.failed_in(), "loader 'train', batch 1");
}

TEST_F(LatePassTest, ALossThatIsNotFiniteEndsTheRunAfterItsUpdate) {
  settings.terminate_on_nan = true;
  bad = 2;
  std::vector<std::string> messages;
  for (const bool late : {false, true}) {
    state.progress = {};
    messages.push_back(toy::error_of([&] { train(late); }));
    EXPECT_EQ(weight.isfinite().all().item<bool>(), !late);
    EXPECT_EQ(seen.size(), 3U) << "no hook from on_batch_end on sees the batch";
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_THAT(messages[1], testing::HasSubstr("batch 2: 'loss' is inf, expected a finite number"));
}

// A batch that was read ahead is not used if the pass ends before it.
TEST_F(LatePassTest, AnEarlyEndDropsTheBatchThatIsAhead) {
  settings.copies = &copies;
  weight = torch::tensor({1.0F, -2.0F});
  std::vector<double> first;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) { first.push_back(s.batch["features"][0].item<double>()); };
  hooks->batch_end = [](State& s) { s.request_loader_end(); };
  callbacks = {hooks};
  LoaderPass pass(state, callbacks, handle, {}, profiler, settings);
  pass.run({.loader = "valid"});
  pass.run({.loader = "valid"});
  EXPECT_THAT(first, ElementsAre(1.0, 1.0));
}

}  // namespace
}  // namespace lockstep
