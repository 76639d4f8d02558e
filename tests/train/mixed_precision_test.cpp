#include "lockstep/train/mixed_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/state/hash.h"
#include "lockstep/train/plan.h"
#include "tests/support/half_on_cpu.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using testing::ElementsAre;
using testing::HasSubstr;

const torch::Device kOnCpu = torch::kCPU;

// An engine whose workers are forked.
std::shared_ptr<Engine> two_shards(int workers, const std::string& backend = "auto") {
  return std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
      .workers = workers, .shards = 2, .backend = backend, .timeout = std::chrono::seconds(60)});
}

TEST(MixedPrecision, OptionsSayItInOneWay) {
  TrainOptions options;
  EXPECT_EQ(precision_of(options, kOnCpu), Precision::kFp32);
  EXPECT_FALSE(scaler_of(options, Precision::kFp32));
  options.amp = true;
  EXPECT_EQ(precision_of(options, kOnCpu), Precision::kBf16) << "what a CPU is made for";
  options.precision = "bf16";
  EXPECT_EQ(precision_of(options, kOnCpu), Precision::kBf16);
  EXPECT_FALSE(scaler_of(options, Precision::kBf16));
  options.fp16 = true;
  EXPECT_THAT(toy::error_of([&] { precision_of(options, kOnCpu); }),
              HasSubstr("fp16: precision is bf16, which contradicts it"));
  EXPECT_EQ(scaler_of(options, Precision::kFp16), optim::GradScalerOptions());
  options.grad_scaler = optim::GradScalerOptions{.enabled = false};
  EXPECT_FALSE(scaler_of(options, Precision::kFp16));
}

TEST(MixedPrecision, WidensTensorsListsAndNestedBatches) {
  const auto narrow = torch::ones({2}, torch::kBFloat16);
  Batch batch{{"a", narrow}, {"b", torch::ones({2}, torch::kInt64)}};
  batch.set("list", Batch::List{narrow, torch::ones({1})});
  batch.set("nested", Batch{{"c", narrow}});
  widen(batch);
  EXPECT_EQ(batch["a"].scalar_type(), torch::kFloat32);
  EXPECT_EQ(batch["b"].scalar_type(), torch::kInt64);
  EXPECT_EQ(batch.list("list")[0].scalar_type(), torch::kFloat32);
  EXPECT_EQ(batch.nested("nested")["c"].scalar_type(), torch::kFloat32);
}

TEST(MixedPrecision, ALossThatIsWidenedIsStillAMeanOverTheSame) {
  State state;
  state.batch = Batch{{"features", torch::ones({4, 1})}};
  state.set_loss(torch::ones({}, torch::kBFloat16), mean_over(3));
  widen(state, "loss");
  EXPECT_EQ(state.batch["loss"].scalar_type(), torch::kFloat32);
  EXPECT_EQ(state.loss_over(), mean_over(3));
}

// The data of scripts/goldens/precision.py.
std::shared_ptr<data::TensorDataset> hashed_images(std::uint32_t samples) {
  const auto mix = [](std::uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
  };
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::uint32_t i = 0; i < samples; ++i) {
    const std::uint32_t label = mix(i) % 10;
    labels.push_back(label);
    for (std::uint32_t p = 0; p < 64; ++p) {
      const std::uint32_t pattern = mix((1U << 20) + 64 * label + p) % 2;
      const std::uint32_t pixel = mix((1U << 16) + 64 * i + p) % 192 + 64 * pattern;
      pixels.push_back(static_cast<float>(pixel));
    }
  }
  const auto features = torch::tensor(pixels).view({samples, 1, 8, 8}) / 255;
  return std::make_shared<data::TensorDataset>(features, torch::tensor(labels));
}

// The run of a case in precision.json.
TrainOptions golden_run(const nlohmann::json& one,
                        const std::shared_ptr<data::TensorDataset>& dataset) {
  const bool is_mlp = one.at("name") == "mlp";
  TrainOptions options;
  options.model =
      is_mlp ? nn::Sequential(nn::Flatten(), nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 10))
             : nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::BatchNorm2d(4),
                              nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64, 10));
  for (auto& [key, weight] : options.model.weights()) {
    const torch::NoGradGuard no_grad;
    const auto& value = one.at("initial").at(key);
    torch::Tensor(weight).copy_(
        torch::tensor(value.at("values").get<std::vector<double>>(), torch::kFloat64)
            .view(value.at("shape").get<std::vector<std::int64_t>>()));
  }
  options.criterion = nn::CrossEntropyLoss();
  if (is_mlp) {
    options.optimizer = optim::Adam{.lr = 0.005};
  } else {
    options.optimizer = optim::SGD{.lr = 0.01, .momentum = 0.5};
  }
  options.loaders = {{"train", {dataset, {.batch_size = 16}}}};
  options.num_epochs = 5;
  options.console = false;
  options.engine = std::make_shared<DeviceEngine>(
      DeviceEngineOptions{.device = torch::Device(torch::kCPU), .threads = 1});
  return options;
}

nlohmann::json golden(const std::string& file) {
  return nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/" + file));
}

double sum_of_distances(const std::vector<double>& ours, const nlohmann::json& theirs) {
  double sum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) sum += std::abs(ours[i] - theirs[i].get<double>());
  return sum;
}

// PyTorch's autocast for 50 steps: scripts/goldens/precision.py. Our optimizers may round the last
// bit of a float32 weight in another way, and some of these weights then become another bf16. In
// PyTorch itself, changing the last bits of all weights at random after every step changes the
// losses by up to 0.0004 (MLP) and 0.0022 (CNN with batch norm over 16 samples); the tolerances are
// about twice that. All changes together are a third of the difference between bf16 and fp32.
TEST(MixedPrecision, FollowsPyTorch) {
  const auto all = golden("precision.json");
  const auto dataset = hashed_images(all.at("samples").get<std::uint32_t>());
  for (const auto& one : all.at("cases")) {
    const auto name = one.at("name").get<std::string>();
    SCOPED_TRACE(name);
    TrainOptions options = golden_run(one, dataset);
    options.precision = "bf16";
    std::vector<double> losses;
    std::vector<torch::ScalarType> types;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [&](State& s) {
      losses.push_back(s.batch_metrics.at("loss"));
      types.push_back(s.batch["logits"].scalar_type());
    };
    options.callbacks = {hooks};
    toy::train(options);
    ASSERT_EQ(losses.size(), 50U);
    EXPECT_THAT(types, testing::Each(torch::kFloat32)) << "callbacks get float32";
    const double tolerance = name == "mlp" ? 1e-3 : 5e-3;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double theirs = one.at("bf16")[i].get<double>();
      EXPECT_NEAR(losses[i], theirs, tolerance * std::max(1.0, theirs)) << "step " << i;
    }
    EXPECT_LT(sum_of_distances(losses, one.at("bf16")),
              0.7 * sum_of_distances(losses, one.at("fp32")))
        << "nearer to PyTorch's bf16 than to its fp32";
  }
}

// The same models with fp16 and PyTorch's GradScaler: scripts/goldens/precision_fp16.py. The scale
// and the skipped updates must be the same. In PyTorch itself, changing the last bits of all
// weights at random changes the losses by up to 0.00007 (MLP) and 0.0026 (CNN), relative to the
// loss. CPUs may also round an fp16 product in another way: changing the last bit of all outputs of
// linear and convolutional layers at random changes the losses by up to 0.0043. The tolerance is
// just above that. Without the skipped updates, the losses of the MLP would differ by 0.048.
TEST(MixedPrecision, FollowsPyTorchInFp16) {
  const auto all = golden("precision.json");
  const auto of_fp16 = golden("precision_fp16.json");
  const auto dataset = hashed_images(all.at("samples").get<std::uint32_t>());
  for (const auto& one : all.at("cases")) {
    const auto name = one.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const auto& expected = of_fp16.at("cases").at(name);
    const auto& scaler = expected.at("scaler");
    TrainOptions options = golden_run(one, dataset);
    options.precision = "fp16";
    options.grad_scaler =
        optim::GradScalerOptions{.init_scale = scaler.at("init_scale").get<double>(),
                                 .growth_factor = scaler.at("growth_factor").get<double>(),
                                 .backoff_factor = scaler.at("backoff_factor").get<double>(),
                                 .growth_interval = scaler.at("growth_interval").get<int>()};
    std::vector<double> losses, scales;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [&](State& s) {
      losses.push_back(s.batch_metrics.at("loss"));
      scales.push_back(s.batch_metrics.at("gradient/scale"));
    };
    options.callbacks = {hooks};
    toy::Warnings warnings;  // that a CPU without instructions for fp16 is slow
    if (!kCpuHasHalf) {
      EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
                  HasSubstr("precision: fp16: LibTorch"));
      EXPECT_TRUE(losses.empty()) << "refused before the run";
      continue;
    }
    const auto result = toy::train(options);
    EXPECT_EQ(scales, expected.at("scale").get<std::vector<double>>());
    EXPECT_EQ(result.skipped_steps, name == "mlp" ? 3 : 0);
    ASSERT_EQ(losses.size(), 50U);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double theirs = expected.at("fp16")[i].get<double>();
      EXPECT_NEAR(losses[i], theirs, 5e-3 * std::max(1.0, theirs)) << "step " << i;
    }
  }
}

TEST(MixedPrecision, TheSameBitsForAnyNumberOfWorkers) {
  const auto trained = [](int workers, const std::string& backend, Precision precision) {
    TrainOptions options = toy::options();
    options.engine = two_shards(workers, backend);
    options.precision = precision;
    options.callbacks = {AccuracyCallback({.num_classes = 3})};
    return toy::train(options);
  };
  const auto alone = trained(1, "auto", "bf16");
  EXPECT_NE(alone.weights_hash, trained(1, "auto", "fp32").weights_hash);
  for (const char* const backend : {"auto", "gloo"}) {
    const auto two = trained(2, backend, "bf16");
    EXPECT_EQ(two.weights_hash, alone.weights_hash) << backend;
    EXPECT_EQ(two.last_metrics, alone.last_metrics) << backend;
  }
}

// A scale that is so large that gradients overflow, also in float32: the same rules as in fp16. The
// loss is large, too. Otherwise the factor that undoes the scale would be a denormal number, which
// is zero in a run.
TrainOptions scaled_options(int workers) {
  TrainOptions options = toy::options();
  options.criterion = [](const torch::Tensor& outputs, const torch::Tensor& targets) {
    return nn::functional::cross_entropy(outputs, targets) * 0x1p40;
  };
  options.loaders = toy::loaders(4);  // 7 batches of 2 shards
  options.engine = two_shards(workers);
  options.grad_scaler = optim::GradScalerOptions{.init_scale = 0x1p90, .growth_interval = 3};
  options.clip_grad_norm = 0x1p39;
  options.clip_grad_value = 0x1p37;
  return options;
}

TEST(MixedPrecision, UpdatesThatAreNotFiniteAreSkippedOnAllWorkers) {
  std::vector<double> scales, skipped;
  TrainOptions options = scaled_options(1);
  auto hooks = std::make_shared<toy::Hooks>();
  std::vector<std::string> hashes;
  hooks->step = [&](State& s) {
    if (!s.is_train) return;
    hashes.push_back(weights_hash(s.model.parameters()));
  };
  hooks->batch_end = [&](State& s) {
    if (!s.is_train || s.shard != 0) return;
    scales.push_back(s.batch_metrics.at("gradient/scale"));
    skipped.push_back(s.batch_metrics.at("gradient/skipped"));
    EXPECT_EQ(s.batch_metrics.contains("gradient/norm"), skipped.back() == 0);
  };
  options.callbacks = {hooks};
  const auto alone = toy::train(options);
  EXPECT_GT(alone.skipped_steps, 0);
  EXPECT_LT(alone.skipped_steps, alone.steps);
  EXPECT_EQ(std::count(skipped.begin(), skipped.end(), 1), alone.skipped_steps);
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    EXPECT_EQ(hashes[i] == hashes[i - 1], skipped[i] == 1) << "step " << i;
    if (skipped[i - 1] == 1) {
      EXPECT_EQ(scales[i], scales[i - 1] / 2) << "step " << i;
    }
  }
  const auto two = toy::train(scaled_options(2));
  EXPECT_EQ(two.weights_hash, alone.weights_hash);
  EXPECT_EQ(two.skipped_steps, alone.skipped_steps);
  EXPECT_EQ(two.last_metrics, alone.last_metrics);
}

// A power of two changes no bits, as long as nothing overflows.
TEST(MixedPrecision, TheScaleIsTakenOutBeforeClipping) {
  TrainOptions options = scaled_options(1);
  options.grad_scaler = optim::GradScalerOptions{.init_scale = 65536};
  const auto scaled = toy::train(options);
  EXPECT_EQ(scaled.skipped_steps, 0);
  options = scaled_options(1);
  options.grad_scaler.reset();
  const auto plain = toy::train(options);
  EXPECT_EQ(scaled.weights_hash, plain.weights_hash);
  EXPECT_EQ(scaled.last_metrics.at("train").at("gradient/norm"),
            plain.last_metrics.at("train").at("gradient/norm"));
}

TEST(MixedPrecision, ResumesInTheMiddleOfAnEpochWithTheSameBits) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const TemporaryDirectory folder;
    const auto options = [&] {
      TrainOptions all = scaled_options(1);
      all.precision = precision;
      return all;
    };
    const auto straight = toy::train(options());
    TrainOptions first = options();
    first.logdir = folder / "run";
    auto stop = std::make_shared<toy::Hooks>();
    stop->step = [](State& s) {
      if (s.is_train && s.progress.batch_step == 12) throw Error("stopped here");
    };
    first.callbacks = {CheckpointCallback({.save_every_batches = 3}), stop};
    EXPECT_THAT(toy::error_of([&] { toy::train(first); }), HasSubstr("stopped here"));
    const StateDict saved = checkpoint::load(folder / "run/checkpoints/last.pth");
    EXPECT_EQ(saved_precision(saved), precision);
    EXPECT_GT(saved.get<StateDict>("scaler_state_dict").get<std::int64_t>("skipped"), 0);
    EXPECT_FALSE(saved.get<StateDict>("run").get<std::string>("loader").empty());
    TrainOptions second = options();
    second.logdir = folder / "run";
    second.resume = "last";
    const auto resumed = toy::train(second);
    EXPECT_EQ(resumed.weights_hash, straight.weights_hash) << precision.name();
    EXPECT_EQ(resumed.skipped_steps, straight.skipped_steps);
    const auto summary = nlohmann::json::parse(read_file(folder / "run/summary.json"));
    EXPECT_EQ(summary.at("precision"), precision.name());
    EXPECT_EQ(summary.at("skipped_steps"), straight.skipped_steps);
  }
}

TEST(MixedPrecision, ARunThatRecoversHasTheSameScale) {
  const auto straight = toy::train(scaled_options(2));
  TrainOptions options = scaled_options(2);
  options.max_restarts = 1;
  auto fault = std::make_shared<toy::Hooks>();
  fault->step = [](State& s) {
    const bool here = s.is_train && s.restarts == 0 && s.progress.batch_step == 9;
    if (here && s.comm->rank() == 1) throw Error("a fault");
  };
  options.callbacks = {fault};
  toy::Warnings warnings;
  const auto recovered = toy::train(options);
  EXPECT_EQ(recovered.recoveries, 1);
  EXPECT_EQ(recovered.weights_hash, straight.weights_hash);
  EXPECT_EQ(recovered.skipped_steps, straight.skipped_steps);
}

TEST(MixedPrecision, ARunWhoseGradientsAreNeverFiniteStops) {
  TrainOptions options = toy::options();
  options.criterion = [](const torch::Tensor& outputs, const torch::Tensor&) {
    return outputs.sum() * std::numeric_limits<float>::quiet_NaN();
  };
  options.grad_scaler = optim::GradScalerOptions{.backoff_factor = 1e-3};
  toy::Warnings warnings;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("updates were skipped: the loss itself is not finite"));
}

// Two networks, each with its own phase and loss.
struct SquaresRunner : Runner {
  void handle_batch(State& state) override {
    const auto output = state.models[state.phase](state.batch["features"]);
    const bool is_bad = state.phase == "first" && state.progress.batch_step == infinite_after;
    const double factor = is_bad ? std::numeric_limits<double>::infinity() : 1.0;
    state.set_loss(output.square().mean() * factor);
  }

  // So many batches come before the one in which the first network has no finite gradient.
  std::int64_t infinite_after = -1;
};

TrainOptions squares_options(std::int64_t samples) {
  torch::manual_seed(1);
  TrainOptions options;
  options.models = {{"first", nn::Linear(4, 2)}, {"second", nn::Linear(4, 2)}};
  options.optimizers = {{"first", optim::SGD{.lr = 0.1}}, {"second", optim::SGD{.lr = 0.1}}};
  options.phases = {"first", "second"};
  options.loaders = {{"train", {toy::points(samples), {.batch_size = 8}}}};
  options.console = false;
  return options;
}

// Each phase is skipped by its own gradients, and the scale changes once per batch.
TEST(MixedPrecision, PhasesShareOneScaler) {
  SquaresRunner runner;
  runner.infinite_after = 1;
  TrainOptions options = squares_options(24);
  options.grad_scaler = optim::GradScalerOptions{};
  std::vector<double> first, second, scales;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) {
    first.push_back(s.batch_metrics.at("gradient/skipped/first"));
    second.push_back(s.batch_metrics.at("gradient/skipped/second"));
    scales.push_back(s.batch_metrics.at("gradient/scale/second"));
  };
  options.callbacks = {hooks};
  toy::Warnings warnings;
  const auto result = runner.train(options);
  EXPECT_THAT(first, ElementsAre(0, 1, 0));
  EXPECT_THAT(second, ElementsAre(0, 0, 0));
  EXPECT_THAT(scales, ElementsAre(65536, 65536, 32768)) << "one scale for both phases of a batch";
  EXPECT_EQ(result.skipped_steps, 1);
}

// The second phase adds gradients of batches 2 and 4, and the first one has updates between them.
TEST(MixedPrecision, TheScaleDoesNotChangeUnderGradientsThatWait) {
  const auto trained = [](bool scaled) {
    SquaresRunner runner;
    TrainOptions options = squares_options(64);
    options.phases = {"first", Phase{.name = "second", .every = 2}};
    options.accumulation_steps = 2;
    if (scaled) options.grad_scaler = optim::GradScalerOptions{.growth_interval = 1};
    return runner.train(options);
  };
  const auto scaled = trained(true);
  EXPECT_GT(scaled.last_metrics.at("train").at("gradient/scale/first"), 65536) << "it has grown";
  EXPECT_EQ(scaled.weights_hash, trained(false).weights_hash) << "powers of two change no bits";
}

// An engine of the user's still sees every call, and its factor counts together with the scale.
TEST(MixedPrecision, ComposesWithTheHooksOfAnEngine) {
  struct FourfoldEngine : DeviceEngine {
    FourfoldEngine() : DeviceEngine({.device = torch::Device(torch::kCPU)}) {}
    void forward(const std::function<void()>& body) override {
      ++forwards;
      body();
    }
    void backward(const torch::Tensor& loss, const torch::Tensor& gradient) override {
      const torch::Tensor factor = torch::full_like(loss, 4.0);
      loss.backward(gradient.defined() ? gradient * factor : factor);
    }
    double gradient_factor() const override { return 0.25; }
    int forwards = 0;
  };
  const auto engine = std::make_shared<FourfoldEngine>();
  const auto trained = [](std::shared_ptr<Engine> of, bool scaled) {
    TrainOptions options = toy::options();
    options.precision = "bf16";
    options.engine = std::move(of);
    if (scaled) options.grad_scaler = optim::GradScalerOptions{};
    return toy::train(options).weights_hash;
  };
  EXPECT_EQ(trained(engine, true), trained(nullptr, false)) << "powers of two change no bits";
  EXPECT_GT(engine->forwards, 0);
}

// Notes the type of its outputs.
struct Typed : nn::Module {
  Typed() : layer(register_module("layer", nn::Linear(4, 3))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = layer->forward(x);
    inside = y.scalar_type();
    return y;
  }
  nn::Linear layer;
  torch::ScalarType inside = torch::kInt64;
};

TEST(MixedPrecision, CallbacksSeeFloatsAndTheForwardPassDoesNot) {
  const auto module = std::make_shared<Typed>();
  TrainOptions options = toy::options();
  options.model = module;
  options.num_epochs = 1;
  options.precision = "bf16";
  std::vector<torch::ScalarType> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  const auto note = [&](State& s) { seen.push_back(s.batch["logits"].scalar_type()); };
  hooks->outputs = note;
  hooks->forward = note;
  hooks->batch_end = note;
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_EQ(module->inside, torch::kBFloat16);
  EXPECT_GT(seen.size(), 10U);
  EXPECT_THAT(seen, testing::Each(torch::kFloat32));
}

TEST(MixedPrecision, EvaluationAndPredictionHaveThePrecisionOfTheTraining) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.precision = "bf16";
  options.logdir = folder / "run";
  options.callbacks = {CheckpointCallback()};
  SupervisedRunner runner;
  const auto result = runner.train(options);
  const data::Loader loader = {toy::points(30, 2), {.batch_size = 10}};
  const auto metrics = runner.evaluate_loader({.loader = loader});
  EXPECT_EQ(metrics.at("loss"), result.last_metrics.at("valid").at("loss"));
  const auto exact = runner.evaluate_loader({.loader = loader, .precision = "fp32"});
  EXPECT_NE(exact.at("loss"), metrics.at("loss"));
  const auto predicted = runner.predict_loader({.loader = loader}).concat("logits");
  EXPECT_EQ(predicted.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(predicted.equal(predicted.to(torch::kBFloat16).to(torch::kFloat32)))
      << "computed in bf16";
  // Another runner takes the precision from the checkpoint.
  SupervisedRunner other;
  const std::string last = (folder / "run/checkpoints/last.pth").string();
  EXPECT_TRUE(other.predict_loader({.loader = loader, .model = toy::model(), .resume = last})
                  .concat("logits")
                  .equal(predicted));
  EXPECT_EQ(other
                .evaluate_loader({.loader = loader,
                                  .model = toy::model(),
                                  .criterion = nn::CrossEntropyLoss(),
                                  .resume = last})
                .at("loss"),
            metrics.at("loss"));
  EXPECT_FALSE(
      other
          .predict_loader(
              {.loader = loader, .model = toy::model(), .resume = last, .precision = "fp32"})
          .concat("logits")
          .equal(predicted));
}

TEST(MixedPrecision, AnotherPrecisionIsResumedWithAWarning) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.precision = "bf16";
  options.logdir = folder / "run";
  options.callbacks = {CheckpointCallback()};
  toy::train(options);
  options.precision = "fp32";
  options.resume = "last";
  options.num_epochs = 4;
  toy::Warnings warnings;
  toy::train(options);
  EXPECT_THAT(warnings.texts,
              testing::Contains(HasSubstr("had the precision bf16, this run has fp32")));
}

TEST(MixedPrecision, Fp16IsRefusedBeforeTheRunOrWorks) {
  const auto module = std::make_shared<Typed>();
  TrainOptions options = toy::options();
  options.model = module;
  options.fp16 = true;
  std::vector<double> scales;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) {
    if (s.is_train) scales.push_back(s.batch_metrics.at("gradient/scale"));
  };
  options.callbacks = {hooks};
  toy::Warnings warnings;
  const std::string error = toy::error_of([&] { toy::train(options); });
  if (kCpuHasHalf) {
    EXPECT_EQ(error, "");
    EXPECT_EQ(module->inside, torch::kHalf);
    ASSERT_FALSE(scales.empty());
    EXPECT_EQ(scales.front(), 65536);
  } else {
    EXPECT_THAT(error, HasSubstr("precision: fp16: LibTorch"));
    EXPECT_EQ(module->inside, torch::kInt64) << "it did not run";
  }
}

TEST(MixedPrecision, TheDryRunHasIt) {
  struct NeedsBf16 : nn::Module {
    NeedsBf16() : layer(register_module("layer", nn::Linear(4, 3))) {}
    torch::Tensor forward(const torch::Tensor& x) {
      const auto y = layer->forward(x);
      if (y.scalar_type() != torch::kBFloat16) throw Error("expected bf16");
      return y;
    }
    nn::Linear layer;
  };
  TrainOptions options = toy::options();
  options.model = std::make_shared<NeedsBf16>();
  options.precision = "bf16";
  options.callbacks = {AccuracyCallback({.num_classes = 3})};
  EXPECT_EQ(toy::error_of([&] { toy::train(options); }), "");
}

}  // namespace
}  // namespace lockstep
