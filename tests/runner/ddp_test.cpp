// Training by several workers, end to end: real processes, on a small problem.
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/compute/checkpointed.h"
#include "lockstep/compute/switches.h"
#include "lockstep/data/cache.h"
#include "lockstep/data/transformed.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/state/hash.h"
#include "tests/comm/free_port.h"
#include "tests/data/toy_transforms.h"
#include "tests/support/toy.h"
#include "tests/support/two_hosts.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Workers {
  int workers = 1;
  int shards = 4;
  std::string backend = "auto";
  bool share_updates = true;
};

std::shared_ptr<Engine> engine(const Workers& setup) {
  return std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = setup.workers,
                                     .shards = setup.shards,
                                     .backend = setup.backend,
                                     .share_updates = setup.share_updates,
                                     .timeout = std::chrono::seconds(60)});
}

TrainOptions with(const Workers& setup) {
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3}), AUCCallback({.num_classes = 3})};
  options.engine = engine(setup);
  return options;
}

// The toy model has dropout and batch norm.
TEST(Ddp, TheSameBitsForAnyNumberOfWorkersAndAnyWayToTalk) {
  const auto alone = toy::train(with({.workers = 1}));
  for (const Workers& setup :
       {Workers{.workers = 2}, Workers{.workers = 3}, Workers{.workers = 4},
        Workers{.workers = 2, .backend = "gloo"}, Workers{.workers = 4, .backend = "gloo"},
        Workers{.workers = 3, .share_updates = false}}) {
    SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
    const auto many = toy::train(with(setup));
    EXPECT_EQ(many.weights_hash, alone.weights_hash);
    EXPECT_EQ(many.history, alone.history) << "every metric of every epoch, to the bit";
  }
}

TEST(Ddp, RoundedGradientsGiveTheSameBitsForAnyNumberOfWorkersAndAnyWayToTalk) {
  const auto run = [](const Workers& setup, std::int64_t accumulation_steps) {
    TrainOptions options = with(setup);
    options.wire = Wire::kBf16;
    options.clip_grad_norm = 0.5;
    options.accumulation_steps = accumulation_steps;
    return toy::train(options);
  };
  for (const std::int64_t steps : {1, 3}) {
    const auto alone = run({.workers = 1}, steps);
    EXPECT_NE(alone.weights_hash, toy::train(with({.workers = 1})).weights_hash);
    for (const Workers& setup :
         {Workers{.workers = 2}, Workers{.workers = 3}, Workers{.workers = 2, .backend = "gloo"},
          Workers{.workers = 3, .backend = "gloo"},
          Workers{.workers = 3, .share_updates = false}}) {
      SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
      const auto many = run(setup, steps);
      EXPECT_EQ(many.weights_hash, alone.weights_hash);
      EXPECT_EQ(many.history, alone.history);
    }
  }
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t in, std::int64_t out) : linear(in, out), norm(out) {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::dropout(norm->forward(linear->forward(x)).relu(), 0.2, is_training());
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Block);

// Activations that are computed again give the same weights and metrics, and their checkpoints fit
// a model that keeps them. The last case synchronises batch norm over the workers.
TEST(Ddp, CheckpointedModulesGiveTheSameBits) {
  const auto model = [](bool checkpoints) {
    manual_seed(7);
    const torch::nn::Linear last(16, 3);
    if (!checkpoints) return torch::nn::Sequential(Block(4, 16), Block(16, 16), last);
    return torch::nn::Sequential(checkpointed(Block(4, 16)), checkpointed(Block(16, 16)), last);
  };
  const auto run = [&](bool checkpoints, const Workers& setup, bool sync_bn) {
    TrainOptions options = with(setup);
    options.model = model(checkpoints);
    options.accumulation_steps = 2;
    if (sync_bn) {
      options.loaders = {
          {"train", {toy::points(50), {.batch_size = 8, .shuffle = true, .drop_last = true}}},
          {"valid", {toy::points(30, 2), {.batch_size = 10}}}};
    }
    options.engine = std::make_shared<DistributedDataParallelEngine>(
        DistributedDataParallelOptions{.workers = setup.workers,
                                       .shards = setup.shards,
                                       .backend = setup.backend,
                                       .sync_bn = sync_bn,
                                       .timeout = std::chrono::seconds(60)});
    return toy::train(options);
  };
  const auto kept = run(false, {.workers = 1}, false);
  for (const Workers& setup :
       {Workers{.workers = 1}, Workers{.workers = 2}, Workers{.workers = 3, .backend = "gloo"}}) {
    const auto again = run(true, setup, false);
    EXPECT_EQ(again.weights_hash, kept.weights_hash);
    EXPECT_EQ(again.history, kept.history);
  }
  const Workers two{.workers = 2, .shards = 2};
  EXPECT_EQ(run(true, two, true).weights_hash, run(false, two, true).weights_hash);
  Model(model(true)).load_state(kept.model.state());
}

// With a random transform of the samples.
TEST(Ddp, TheSameBitsForAnyNumberOfLoadingThreads) {
  struct Loading {
    int workers = 1;
    std::int64_t prefetch = 0;
    std::int64_t threads = 0;
    bool cache = false;
    bool random = true;
  };
  const auto run = [](const Loading& loading) {
    TrainOptions options = toy::options();
    options.engine = engine({.workers = loading.workers, .shards = 2});
    data::DatasetPtr points = toy::points(50);
    if (loading.cache) points = data::cached(points);
    if (loading.random) points = data::transformed(points, {.transform = data::RandomOffset()});
    options.loaders = {{"train",
                        {points,
                         {.batch_size = 4,
                          .shuffle = true,
                          .prefetch = loading.prefetch,
                          .threads = loading.threads}}},
                       {"valid", {toy::points(30, 2), {.batch_size = 10}}}};
    return toy::train(options);
  };
  const auto plain = run({});
  EXPECT_NE(plain.weights_hash, run({.random = false}).weights_hash);
  for (const Loading& loading :
       {Loading{.prefetch = 3}, Loading{.threads = 1}, Loading{.threads = 2, .cache = true},
        Loading{.prefetch = 3, .threads = 4}, Loading{.workers = 2},
        Loading{.workers = 2, .prefetch = 3}, Loading{.workers = 2, .threads = 2},
        Loading{.workers = 2, .threads = 4, .cache = true}}) {
    SCOPED_TRACE(fmt::format("{} workers, prefetch {}, {} threads, cache {}", loading.workers,
                             loading.prefetch, loading.threads, loading.cache));
    const auto result = run(loading);
    EXPECT_EQ(result.weights_hash, plain.weights_hash);
    EXPECT_EQ(result.history, plain.history);
  }
}

// Epochs that go on in the middle of the data, an end inside an epoch, an optimizer of the user's
// class, and a second run that goes on from the first.
TEST(Ddp, ARunOfAnyLengthHasTheSameBitsForAnyNumberOfWorkers) {
  class Descent : public optim::Optimizer {
   public:
    explicit Descent(optim::FlatParameters& parameters) : parameters_(parameters) {}
    std::string name() const override { return "Descent"; }
    void step(const optim::StepOptions& options) override {
      ++steps_;
      optim::update_each(parameters_, options, [this](const auto& slice, const auto& gradient) {
        slice.parameter.sub_(gradient, lr_ / static_cast<double>(steps_));
      });
    }
    double lr() const override { return lr_; }
    void set_lr(double lr) override { lr_ = lr; }
    StateDict state() const override { return {{"lr", lr_}, {"steps", steps_}}; }
    void load_state(const StateDict& state) override {
      lr_ = state.get<double>("lr");
      steps_ = state.get<std::int64_t>("steps");
    }

   private:
    optim::FlatParameters& parameters_;
    double lr_ = 0.1;
    std::int64_t steps_ = 0;
  };
  const auto options = [](const Workers& setup, std::int64_t num_steps) {
    TrainOptions options = with(setup);
    options.num_epochs = 1;
    options.num_steps = num_steps;
    options.steps_per_epoch = 3;
    options.valid_every = 2;
    options.keep_run = true;
    options.optimizer = [](optim::FlatParameters& parameters) {
      return std::make_unique<Descent>(parameters);
    };
    options.scheduler = optim::warmup(2, optim::ExponentialLR{.gamma = 0.5});
    return options;
  };
  const auto alone = toy::train(options({.workers = 1, .shards = 2}, 9));
  for (const Workers& setup :
       {Workers{.workers = 1, .shards = 2}, Workers{.workers = 2, .shards = 2},
        Workers{.workers = 2, .shards = 2, .share_updates = false}}) {
    SupervisedRunner runner;
    runner.train(options(setup, 6));
    const auto result = runner.continue_training({.num_steps = 9});
    EXPECT_EQ(result.steps, 3);
    EXPECT_EQ(result.weights_hash, alone.weights_hash) << setup.workers << setup.share_updates;
  }
}

// The function is called on every rank, so only what it made can be compared.
TEST(Ddp, RanksWhoseFunctionsMakeDifferentOptimizersAreRefused) {
  TrainOptions options = with({.workers = 2});
  options.optimizer = [caller = ::getpid()](std::vector<torch::Tensor> parameters) {
    const double weight_decay = ::getpid() == caller ? 0.25 : 0.5;
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(0.1).weight_decay(weight_decay));
  };
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("ranks disagree about the optimizer"),
                             HasSubstr("weight_decay=0.25"), HasSubstr("weight_decay=0.5")));
}

TEST(Ddp, RanksWhoseSchedulersDifferAreRefused) {
  TrainOptions options = with({.workers = 2});
  options.num_epochs = 4;
  options.scheduler = optim::FunctionLR{.factor = [caller = ::getpid()](std::int64_t step, auto&) {
    return step < 2 || ::getpid() == caller ? 1.0 : 0.5;
  }};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("ranks disagree about the scheduler"), HasSubstr("2: 1"),
                             HasSubstr("2: 0.5")));
  class Decay : public optim::Scheduler {
   public:
    explicit Decay(double gamma) : gamma_(gamma) {}
    std::string name() const override { return "Decay"; }
    optim::Per per() const override { return optim::Per::kEpoch; }
    void step(std::optional<double>) override {}
    StateDict state() const override { return {{"gamma", gamma_}}; }
    void load_state(const StateDict&) override {}

   private:
    double gamma_;
  };
  options.scheduler = [caller = ::getpid()](optim::Optimizer&, const optim::ScheduleContext&) {
    return std::make_unique<Decay>(::getpid() == caller ? 0.25 : 0.5);
  };
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("ranks disagree about the scheduler"),
                             HasSubstr("gamma=0.25"), HasSubstr("gamma=0.5")));
}

// All layers of the model are known, and it has several megabytes. Gradients are written directly
// if memory is shared, and reduced in buckets if it is not.
TEST(Ddp, APlannedModelHasTheSameBitsTooAndEverySwitchTrainsIt) {
  manual_seed(5);
  const auto images =
      std::make_shared<data::TensorDataset>(torch::randn({40, 1, 12, 12}), torch::randint(3, {40}));
  const auto run = [&](const Workers& setup, std::int64_t accumulation_steps) {
    namespace nn = torch::nn;
    manual_seed(6);
    TrainOptions options = with(setup);
    nn::Sequential model;
    model->push_back(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
    model->push_back(nn::ReLU());
    model->push_back(nn::MaxPool2d(2));
    model->push_back(nn::Flatten());
    model->push_back(nn::Linear(576, 1024));
    model->push_back(nn::ReLU());
    model->push_back(nn::Linear(1024, 3));
    options.model = model;
    options.loaders = {{"train", {images, {.batch_size = 4, .shuffle = true}}}};
    options.valid_loader = {};
    options.num_epochs = 2;
    options.accumulation_steps = accumulation_steps;
    return toy::train(options);
  };
  for (const std::int64_t accumulation_steps : {1, 3}) {
    const auto alone = run({.workers = 1}, accumulation_steps);
    for (const Workers& setup :
         {Workers{.workers = 2}, Workers{.workers = 3}, Workers{.workers = 2, .backend = "gloo"},
          Workers{.workers = 2, .share_updates = false}}) {
      SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
      EXPECT_EQ(run(setup, accumulation_steps).weights_hash, alone.weights_hash);
    }
  }
  const double loss = run({.workers = 1}, 1).last_metrics.at("train").at("loss");
  for (const auto speedup : {compute::Speedup::kPlan, compute::Speedup::kPatches,
                             compute::Speedup::kPool, compute::Speedup::kDenormals}) {
    const compute::WithoutSpeedup without(speedup);
    EXPECT_NEAR(run({.workers = 1}, 1).last_metrics.at("train").at("loss"), loss, 1e-4);
  }
}

// Needs the whole gradient of a parameter.
void each_by_its_norm(std::span<const torch::Tensor> gradients) {
  for (const auto& gradient : gradients) gradient.div_(gradient.norm() + 1e-3);
}

TEST(Ddp, EveryOptionOfTheStepIsTheSameOnAnyNumberOfWorkers) {
  const auto variants = std::vector<std::function<void(TrainOptions&)>>{
      [](TrainOptions& o) { o.accumulation_steps = 3; },
      [](TrainOptions& o) { o.clip_grad_norm = 0.1; },
      [](TrainOptions& o) { o.clip_grad_value = 0.01; },
      [](TrainOptions& o) { o.log_gradient_norm = true; },
      [](TrainOptions& o) { o.clip_grad = each_by_its_norm; },
      [](TrainOptions& o) {
        o.clip_grad = each_by_its_norm;
        o.optimizer = [](std::vector<torch::Tensor> parameters) {
          return std::make_unique<torch::optim::SGD>(parameters, 0.1);
        };
      },
      [](TrainOptions& o) { o.scheduler = optim::OneCycleLR{.max_lr = 0.1}; },
      [](TrainOptions& o) {
        o.optimizer = [](std::vector<torch::Tensor> parameters) {
          return std::make_unique<torch::optim::SGD>(parameters, 0.1);
        };
      },
      [](TrainOptions& o) { o.optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9}; },
  };
  for (std::size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE(i);
    const auto run = [&](const Workers& setup) {
      TrainOptions options = with(setup);
      variants[i](options);
      return toy::train(options);
    };
    const auto alone = run({.workers = 1});
    for (const Workers& setup : {Workers{.workers = 3}, Workers{.workers = 2, .backend = "gloo"}}) {
      const auto many = run(setup);
      EXPECT_EQ(many.weights_hash, alone.weights_hash);
      EXPECT_EQ(many.history, alone.history);
    }
  }
}

// S shards of B samples give the gradient of the mean loss over S * B samples, including an uneven
// last batch.
TEST(Ddp, ShardsOfABatchAreTheBatch) {
  const auto run = [](std::int64_t batch_size, std::shared_ptr<Engine> by) {
    TrainOptions options = toy::options();
    manual_seed(3);
    options.model =
        torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
    options.optimizer = optim::SGD{.lr = 0.1};
    options.loaders = toy::loaders(batch_size);
    options.engine = std::move(by);
    return toy::train(options).model;
  };
  const Model whole = run(12, std::make_shared<DeviceEngine>());
  const Model shards = run(4, engine({.workers = 2, .shards = 3}));
  const auto expected = whole.parameters();
  const auto found = shards.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(found[i].second, expected[i].second, 1e-5, 1e-7))
        << expected[i].first;
  }
}

TEST(Ddp, FewerSamplesThanWorkers) {
  for (const std::int64_t samples : {1, 7, 10}) {
    const auto run = [&](int workers) {
      TrainOptions options = with({.workers = workers});
      options.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
      manual_seed(1);
      for (auto& [name, tensor] : options.model.parameters()) {
        torch::NoGradGuard no_grad;
        torch::Tensor(tensor).uniform_(-1, 1);
      }
      options.loaders = {{"train", {toy::points(samples), {.batch_size = 2, .shuffle = true}}},
                         {"valid", {toy::points(samples, 5), {.batch_size = 3}}}};
      return toy::train(options);
    };
    const auto alone = run(1);
    const auto many = run(4);
    EXPECT_EQ(many.weights_hash, alone.weights_hash) << samples << " samples";
    EXPECT_EQ(many.last_metrics.at("valid").at("accuracy01"),
              alone.last_metrics.at("valid").at("accuracy01"));
    EXPECT_EQ(many.last_metrics.at("valid").at("loss"), alone.last_metrics.at("valid").at("loss"));
  }
}

TEST(Ddp, TrainIsAFunctionThatCanBeCalledAgain) {
  // Autograd was used in this process before, and is used between the two runs.
  const auto x = torch::ones({2}, torch::requires_grad());
  (x * x).sum().backward();
  auto hooks = std::make_shared<toy::Hooks>();
  int epochs = 0;
  hooks->epoch_end = [&](State&) { ++epochs; };
  SupervisedRunner runner;
  TrainOptions options = toy::options();
  options.callbacks = {hooks};
  options.ddp = true;
  options.workers = 3;
  const auto first = runner.train(options);
  EXPECT_EQ(epochs, 3) << "the callback is the caller's own object";
  EXPECT_EQ(weights_hash(options.model.weights()), first.weights_hash) << "so is the model";
  (x * x).sum().backward();
  options.workers = 2;
  const auto second = runner.train(options);
  EXPECT_NE(second.weights_hash, first.weights_hash) << "it went on from the trained weights";
  const double accuracy =
      runner
          .evaluate_loader({.loader = {toy::points(30, 2), {.batch_size = 10}},
                            .callbacks = {AccuracyCallback({.num_classes = 3})}})
          .at("accuracy01");
  EXPECT_GT(accuracy, 0.4);
}

TEST(Ddp, EvaluatesOnAllWorkersExactly) {
  SupervisedRunner runner;
  TrainOptions options = with({.workers = 1, .shards = 4});
  runner.train(options);
  const auto metrics = [&](int workers) {
    return runner.evaluate_loader({.loader = {toy::points(33, 9), {.batch_size = 4}},
                                   .callbacks = {AUCCallback({.num_classes = 3})},
                                   .engine = engine({.workers = workers})});
  };
  EXPECT_EQ(metrics(3), metrics(1));
}

// A loss that is not a mean over samples equals that of the whole batch, however the batch is
// split.
TEST(Ddp, ALossByClassWeightsOrASumIsThatOfTheWholeBatch) {
  namespace nn = torch::nn;
  const std::vector<std::pair<const char*, Criterion>> criterions = {
      {"weights", nn::CrossEntropyLoss(
                      nn::CrossEntropyLossOptions().weight(torch::tensor({0.3f, 1.0f, 2.7f})))},
      {"an ignored class", nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().ignore_index(1))},
      {"a sum", nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().reduction(torch::kSum))},
      {"a weight that is said", Criterion([](const torch::Tensor& x, const torch::Tensor& y) {
                                  return torch::cross_entropy_loss(x, y, {}, at::Reduction::Mean,
                                                                   1);
                                }).mean_over([](const torch::Tensor&, const torch::Tensor& y) {
         return (y != 1).sum().item<double>();
       })}};
  for (const auto& [what, criterion] : criterions) {
    SCOPED_TRACE(what);
    const auto run = [&, &loss = criterion](const Workers& setup) {
      manual_seed(4);
      TrainOptions options = with(setup);
      options.model = nn::Sequential(nn::Linear(4, 3));  // nothing random, no batch statistics
      options.criterion = loss;
      options.optimizer = optim::SGD{.lr = 0.01};
      options.loaders = toy::loaders(32 / setup.shards);
      options.callbacks = {};
      options.num_epochs = 2;
      return toy::train(options);
    };
    const auto whole = run({.workers = 1, .shards = 1});
    const auto four = run({.workers = 1});
    const auto expected = whole.model.parameters(), found = four.model.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(found[i].second, expected[i].second, 1e-5, 1e-6))
          << expected[i].first;
    }
    for (const char* const loader : {"train", "valid"}) {
      const double shown = whole.last_metrics.at(loader).at("loss");
      EXPECT_NEAR(four.last_metrics.at(loader).at("loss"), shown, 1e-4 * shown) << loader;
    }
    for (const Workers& setup :
         {Workers{.workers = 2}, Workers{.workers = 3}, Workers{.workers = 3, .backend = "gloo"}}) {
      const auto many = run(setup);
      EXPECT_EQ(many.weights_hash, four.weights_hash) << setup.workers;
      EXPECT_EQ(many.history, four.history) << setup.workers;
    }
  }
}

// Sequences padded with -100 and the default criterion, trained by a runner that overrides only
// get_loaders().
TEST(Ddp, PaddedTargetsNeverCountWhateverTheRunnerOverrides) {
  namespace nn = torch::nn;
  manual_seed(8);
  const auto tokens = torch::randn({26, 4, 6});  // [N, classes, length]
  auto targets = torch::randint(4, {26, 6}, torch::kInt64);
  for (std::int64_t i = 0; i < 26; ++i) targets[i].narrow(0, i % 7, 6 - i % 7).fill_(-100);
  const auto data = std::make_shared<data::TensorDataset>(tokens, targets);
  struct OwnData : SupervisedRunner {
    explicit OwnData(data::Loaders given) : loaders(std::move(given)) {}
    data::Loaders get_loaders() override { return loaders; }
    data::Loaders loaders;
  };
  const auto run = [&](const Workers& setup, std::int64_t accumulation_steps) {
    manual_seed(4);
    TrainOptions options = with(setup);
    options.model = nn::Sequential(nn::Conv1d(4, 4, 1));
    options.optimizer = optim::SGD{.lr = 0.1};
    options.callbacks = {};
    options.valid_loader = std::nullopt;
    options.accumulation_steps = accumulation_steps;
    const std::int64_t parts = setup.shards * accumulation_steps;
    return OwnData({{"train", {data, {.batch_size = 8 / parts}}}}).train(options);
  };
  const auto whole = run({.workers = 1, .shards = 1}, 1);
  const auto expected = whole.model.parameters();
  const auto near = [&](const TrainResult& result) {
    const auto found = result.model.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(found[i].second, expected[i].second, 1e-5, 1e-6));
    }
    EXPECT_NEAR(result.last_metrics.at("train").at("loss"),
                whole.last_metrics.at("train").at("loss"), 1e-5);
  };
  const auto four = run({.workers = 1}, 1);
  near(four);
  near(run({.workers = 1, .shards = 1}, 4));
  near(run({.workers = 2, .shards = 2}, 2));
  for (const Workers& setup : {Workers{.workers = 2}, Workers{.workers = 3, .backend = "gloo"}}) {
    const auto many = run(setup, 1);
    EXPECT_EQ(many.weights_hash, four.weights_hash);
    EXPECT_EQ(many.history, four.history);
  }
}

TEST(Ddp, ABatchWhoseTargetsAreAllIgnoredChangesNothing) {
  namespace nn = torch::nn;
  const auto data =
      std::make_shared<data::TensorDataset>(torch::randn({8, 4}), torch::zeros({8}, torch::kInt64));
  TrainOptions options = with({.workers = 2});
  options.callbacks = {};
  options.criterion = nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().ignore_index(0));
  options.model = nn::Sequential(nn::Linear(4, 3));
  options.optimizer = optim::SGD{.lr = 0.1};
  options.loaders = {{"train", {data, {.batch_size = 2}}}};
  options.valid_loader = std::nullopt;
  options.terminate_on_nan = true;
  const auto before = options.model.state();
  EXPECT_EQ(content_hash(toy::train(options).model.state()), content_hash(before));
}

// A loss that a user's handle_batch computes is a mean over samples, whatever the criterion is.
TEST(Ddp, ALossOfTheUsersIsAMeanOverSamples) {
  namespace nn = torch::nn;
  struct Own : SupervisedRunner {
    void handle_batch(State& state) override {
      const auto outputs = state.model(state.batch["features"]);
      state.batch.set("loss", state.criterion(outputs, state.batch["targets"]) /
                                  static_cast<double>(state.batch.size()));
    }
  };
  const auto run = [&](int shards) {
    manual_seed(4);
    TrainOptions options = with({.workers = 1, .shards = shards});
    options.model = nn::Sequential(nn::Linear(4, 3));
    options.criterion = nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().reduction(torch::kSum));
    options.optimizer = optim::SGD{.lr = 0.1};
    options.loaders = toy::loaders(32 / shards);
    options.callbacks = {};
    return Own().train(options).model.parameters()[0].second.clone();
  };
  EXPECT_TRUE(torch::allclose(run(4), run(1), 1e-5, 1e-6));
}

// With statistics over all workers, a worker whose targets are all ignored still takes part in
// backward.
TEST(Ddp, AShardWithNothingThatCountsDoesNotHoldUpSynchronisedBatchNorm) {
  namespace nn = torch::nn;
  const auto data = std::make_shared<data::TensorDataset>(torch::randn({8, 4}),
                                                          torch::tensor({0, 0, 1, 2, 1, 2, 0, 0}));
  TrainOptions options = toy::options();
  options.criterion = nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().ignore_index(0));
  options.loaders = {{"train", {data, {.batch_size = 2}}}};
  options.valid_loader = std::nullopt;
  options.engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 2, .sync_bn = true, .timeout = 20s});
  const auto result = toy::train(options);
  EXPECT_TRUE(std::isfinite(result.last_metrics.at("train").at("loss")));
}

TEST(Ddp, SavesInsideEpochsThatTheIntervalDoesNotDivide) {
  TemporaryDirectory folder;
  TrainOptions options = with({.workers = 2, .shards = 2});  // four batches per epoch
  options.logdir = folder / "run";
  options.callbacks.add(CheckpointCallback({.save_every_batches = 3}));
  EXPECT_EQ(toy::train(options).weights_hash,
            toy::train(with({.workers = 1, .shards = 2})).weights_hash);
}

TEST(Ddp, ResumesToTheSameBitsOnAnotherNumberOfWorkers) {
  TemporaryDirectory folder;
  const auto straight = toy::train(with({.workers = 1}));
  const auto stopped = [&](const Workers& setup, const std::string& name) {
    TrainOptions options = with(setup);
    options.logdir = folder / name;
    options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->epoch_start = [](State& s) {
      if (s.progress.epoch == 3) throw Error("the power went");
    };
    hooks->batch_end = [](State& s) {
      if (s.progress.epoch == 2 && s.loader_batch == 2) throw Error("the power went");
    };
    options.callbacks.add(hooks);
    EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("the power went"));
  };
  stopped({.workers = 3}, "three");
  for (const Workers& setup :
       {Workers{.workers = 2}, Workers{.workers = 4, .backend = "gloo"}, Workers{.workers = 1}}) {
    std::filesystem::remove_all(folder / "copy");
    std::filesystem::copy(folder / "three", folder / "copy",
                          std::filesystem::copy_options::recursive);
    TrainOptions options = with(setup);
    options.logdir = folder / "copy";
    options.resume = "last";
    const auto resumed = toy::train(options);
    EXPECT_EQ(resumed.weights_hash, straight.weights_hash);
    EXPECT_EQ(resumed.history, straight.history);
  }
}

TEST(Ddp, ARequestOfOneWorkerAppliesToAll) {
  TrainOptions options = with({.workers = 3});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) {
    if (s.comm->rank() == 2 && s.is_train) {
      s.request_loader_end();
      s.request_stop("rank 2 had enough");
    }
  };
  options.callbacks.add(hooks);
  const auto result = toy::train(options);
  EXPECT_EQ(result.history.size(), 1U);
  EXPECT_EQ(result.stop_reason, "rank 2 had enough");

  // Before the first batch and before the first epoch, too.
  hooks->batch_end = {};
  std::int64_t batches = 0;
  hooks->step = [&](State& s) { batches += s.is_train ? 1 : 0; };
  hooks->loader_start = [](State& s) {
    if (s.comm->rank() == 1 && s.is_train) s.request_loader_end();
  };
  options.num_epochs = 2;
  EXPECT_EQ(toy::train(options).history.size(), 2U);
  EXPECT_EQ(batches, 0);
  hooks->run_start = [](State& s) {
    if (s.comm->rank() == 1) s.request_stop("not today");
  };
  EXPECT_EQ(toy::train(options).stop_reason, "not today");
}

TEST(Ddp, AChangeOfTheModelIsMadeOncePerCopy) {
  for (const Workers& setup : {Workers{.workers = 2}, Workers{.workers = 2, .backend = "gloo"}}) {
    TrainOptions options = with(setup);
    options.num_epochs = 1;
    options.optimizer = optim::SGD{.lr = 0};
    const auto before = options.model.parameters().front().second.detach().clone();
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->epoch_end = [](State& s) {
      s.change_model([&] { torch::Tensor(s.model.parameters().front().second).mul_(2); });
    };
    options.callbacks.add(hooks);
    toy::train(options);
    EXPECT_TRUE(options.model.parameters().front().second.detach().equal(before * 2));
  }
}

// Has batch norm, and a layer whose weight is frozen from the start.
Model partly_frozen() {
  auto model = toy::model();
  model->push_back(torch::nn::Linear(3, 3));
  model->named_parameters()["5.weight"].requires_grad_(false);
  return model;
}

// Changes everything in the model, as a moving average of the weights does. Here it also happens
// between batches whose gradients make one update.
TEST(Ddp, AChangeOfTheModelReachesBuffersAndFrozenParameters) {
  for (const std::int64_t accumulation_steps : {1, 3}) {
    const auto run = [&](const Workers& setup) {
      TrainOptions options = with(setup);
      options.model = partly_frozen();
      options.accumulation_steps = accumulation_steps;
      auto hooks = std::make_shared<toy::Hooks>();
      hooks->step = [](State& s) {
        if (!s.is_train || s.loader_batch != 2) return;
        s.change_model([&] {
          for (const auto& [name, tensor] : s.model.weights()) {
            if (tensor.is_floating_point()) torch::Tensor(tensor).mul_(0.9).add_(0.01);
          }
        });
      };
      // Compares the weights of all ranks after validation, because rank 0's hash is not enough.
      hooks->epoch_end = [](State& s) {
        const auto mine = weights_hash(s.model.weights());
        for (const auto& other : s.comm->all_gather_bytes(mine)) EXPECT_EQ(other, mine);
      };
      options.callbacks.add(hooks);
      return toy::train(options);
    };
    const auto alone = run({.workers = 1});
    for (const Workers& setup :
         {Workers{.workers = 2}, Workers{.workers = 2, .share_updates = false},
          Workers{.workers = 3, .backend = "gloo"}}) {
      SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
      const auto many = run(setup);
      EXPECT_EQ(many.weights_hash, alone.weights_hash);
      EXPECT_EQ(many.history, alone.history);
    }
  }
}

// Every rank changes its own copy of a frozen parameter, as a target network follows the trained
// one. If the parameter were in shared memory, it would be changed once per rank.
TEST(Ddp, AFrozenParameterIsEveryRanksOwn) {
  const auto run = [](const Workers& setup) {
    TrainOptions options = with(setup);
    options.model = partly_frozen();
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = [](State& s) {
      if (!s.is_train) return;
      const torch::NoGradGuard no_grad;
      for (const auto& [name, tensor] : s.model.parameters()) {
        if (name == "5.weight") torch::Tensor(tensor).mul_(0.9).add_(0.01);
      }
    };
    options.callbacks.add(hooks);
    return toy::train(options).weights_hash;
  };
  const std::string alone = run({.workers = 1});
  EXPECT_EQ(run({.workers = 2}), alone);
  EXPECT_EQ(run({.workers = 2, .share_updates = false}), alone);
}

// Epoch 2 trains other parts of the model than epochs 1 and 3.
TEST(Ddp, RequiresGradIsObeyedAtAnyTime) {
  const auto run = [](const Workers& setup) {
    TrainOptions options = with(setup);
    options.model = partly_frozen();
    options.optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};
    const auto named = [](const State& s, const std::string& name) {
      for (const auto& [key, tensor] : s.model.parameters()) {
        if (key == name) return tensor;
      }
      throw Error("no parameter {}", name);
    };
    auto hooks = std::make_shared<toy::Hooks>();
    auto before = std::make_shared<std::map<std::string, torch::Tensor>>();
    hooks->epoch_start = [=](State& s) {
      named(s, "0.weight").requires_grad_(s.progress.epoch != 2);
      named(s, "5.weight").requires_grad_(s.progress.epoch == 2);
      for (const auto& [key, tensor] : s.model.parameters()) {
        (*before)[key] = tensor.detach().clone();
      }
    };
    hooks->epoch_end = [=](State& s) {
      for (const auto& [key, tensor] : s.model.parameters()) {
        const bool frozen = key == (s.progress.epoch == 2 ? "0.weight" : "5.weight");
        EXPECT_EQ(tensor.detach().equal(before->at(key)), frozen)
            << key << " in epoch " << s.progress.epoch;
      }
    };
    options.callbacks.add(hooks);
    return toy::train(options);
  };
  const auto alone = run({.workers = 1});
  for (const Workers& setup : {Workers{.workers = 2}, Workers{.workers = 3, .share_updates = false},
                               Workers{.workers = 2, .backend = "gloo"}}) {
    SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
    const auto many = run(setup);
    EXPECT_EQ(many.weights_hash, alone.weights_hash);
    EXPECT_EQ(many.history, alone.history);
  }
}

// Every worker needs a sample in every batch. If it has one, a run learns.
TEST(Ddp, SynchronisedBatchNorm) {
  const auto run = [](bool drop_last) {
    TrainOptions options = toy::options();
    options.loaders = {
        {"train", {toy::points(50), {.batch_size = 8, .shuffle = true, .drop_last = drop_last}}},
        {"valid", {toy::points(30, 2), {.batch_size = 10}}}};
    options.engine = std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
        .workers = 3, .sync_bn = true, .timeout = std::chrono::seconds(30)});
    return toy::train(options).weights_hash;
  };
  EXPECT_THAT(toy::error_of([&] { run(false); }), HasSubstr("drop_last"));
  EXPECT_EQ(run(true), run(true));
}

TEST(Ddp, WarnsOfAMetricThatIsOnlyAWorkersOwn) {
  TrainOptions options = with({.workers = 2});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [](State& s) { s.loader_metrics["mine"] = s.comm->rank(); };
  options.callbacks.add(hooks);
  toy::Warnings warnings;
  EXPECT_EQ(toy::train(options).last_metrics.at("valid").at("mine"), 0.0);
  EXPECT_THAT(warnings.texts, testing::Contains(HasSubstr("metric 'mine'")));
}

TEST(Ddp, WritesOnce) {
  TemporaryDirectory folder;
  TrainOptions options = with({.workers = 4});
  options.logdir = folder / "run";
  options.callbacks.add(EarlyStoppingCallback({.patience = 1, .min_delta = 100}));
  const auto result = toy::train(options);
  EXPECT_EQ(result.history.size(), 2U) << "all stop early together";
  std::ifstream rows(folder / "run" / "logs" / "train.csv");
  std::int64_t lines = 0;
  for (std::string line; std::getline(rows, line);) ++lines;
  EXPECT_EQ(lines, 3) << "a header and one line per epoch";
  const auto summary = nlohmann::json::parse(read_file(folder / "run" / "summary.json"));
  EXPECT_EQ(summary.at("workers"), 4);
  EXPECT_EQ(summary.at("weights_hash"), result.weights_hash);
}

TEST(Ddp, NamesTheWorkerThatThrew) {
  TrainOptions options = with({.workers = 3});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->forward = [](State& s) {
    if (s.comm->rank() == 1 && s.loader_batch == 2) throw DataError("sample 7 is rotten");
  };
  options.callbacks.add(hooks);
  const std::string error = toy::error_of([&] { toy::train(options); });
  EXPECT_THAT(error, HasSubstr("rank 1"));
  EXPECT_THAT(error, HasSubstr("epoch 1, batch 2"));
  EXPECT_THAT(error, HasSubstr("sample 7 is rotten"));
}

TEST(Ddp, AnUnusedParameterIsLeftAlone) {
  struct Net : torch::nn::Module {
    Net() {
      used = register_module("used", torch::nn::Linear(4, 3));
      unused = register_module("unused", torch::nn::Linear(4, 3));
    }
    torch::Tensor forward(const torch::Tensor& x) { return used(x); }
    torch::nn::Linear used{nullptr}, unused{nullptr};
  };
  manual_seed(2);
  for (const std::string backend : {"shm", "gloo"}) {
    const auto net = std::make_shared<Net>();
    const auto before = net->unused->weight.detach().clone();
    TrainOptions options = with({.workers = 2, .shards = 2, .backend = backend});
    options.model = Model(net);
    options.optimizer = optim::AdamW{.lr = 0.1, .weight_decay = 0.1};
    toy::train(options);
    EXPECT_TRUE(net->unused->weight.detach().equal(before)) << "no weight decay either";
  }
}

// The other ranks wait for rank 0 longer than their time limit, because rank 0 reports that it is
// busy.
TEST(Ddp, ALongCallbackOfRank0DoesNotEndTheRun) {
  struct Slow : Callback {
    void on_epoch_end(State& state) override {
      if (state.comm->is_primary() && state.progress.epoch == 1)
        std::this_thread::sleep_for(2500ms);
    }
  };
  for (const std::string backend : {"shm", "gloo"}) {
    TrainOptions options = toy::options();
    options.callbacks = {Slow()};
    options.engine = std::make_shared<DistributedDataParallelEngine>(
        DistributedDataParallelOptions{.workers = 2, .backend = backend, .timeout = 1s});
    EXPECT_NO_THROW(toy::train(options)) << backend;
  }
}

// Two nodes with two workers each: shared memory inside a node, Gloo between them.
TEST(Ddp, SeveralHostsTrainToTheSameBits) {
  const auto alone = toy::train(with({.workers = 1}));
  expect_same_bits_on_two_hosts(alone, {.workers = 2, .shards = 4}, [](int) { return with({}); });
}

// Only rank 0 takes a snapshot, and each process has its own runner.
TEST(Ddp, EveryRankKnowsThatARunCannotGoOn) {
  struct Unsaved : toy::Hooks {
    StateDict state() const override { throw Error("a state that cannot be saved"); }
  };
  const int port = comm::free_port();
  expect_on_two_hosts([&](int host) {
    TrainOptions options = with({});
    options.num_epochs = 1;
    options.keep_run = true;
    options.callbacks.add(std::make_shared<Unsaved>());
    options.engine = engine_of_host(host, {.workers = 1, .port = port, .join_timeout = 30s});
    SupervisedRunner runner;
    runner.train(options);
    return toy::error_of([&] { runner.continue_training({.num_epochs = 2}); }) ==
           "continue_training: the last run cannot go on: a state that cannot be saved";
  });
}

TEST(Ddp, RefusesWhatContradicts) {
  const auto error = [](auto change) {
    TrainOptions options = toy::options();
    change(options);
    return toy::error_of([&] { toy::train(options); });
  };
  EXPECT_THAT(error([](TrainOptions& o) { o.workers = 2; }), HasSubstr("ddp = true"));
  EXPECT_THAT(error([](TrainOptions& o) {
                o.ddp = true;
                o.engine = std::make_shared<DeviceEngine>();
              }),
              HasSubstr("contradict"));
  EXPECT_THAT(error([](TrainOptions& o) {
                o.ddp = true;
                o.workers = 4;
                o.shards = 2;
              }),
              HasSubstr("shards"));
  EXPECT_THAT(error([](TrainOptions& o) {
                o.ddp = true;
                o.workers = 4;
                o.loaders = {{"train", {toy::points(10), {.batch_size = 4, .drop_last = true}}}};
                o.valid_loader.reset();
              }),
              HasSubstr("4 shards"));
}

// Python's DistributedDataParallel with its DistributedSampler, 100 steps of 2 workers:
// scripts/goldens/ddp.py. The tolerance allows for rounding: another order of addition makes a
// tenth of it.
TEST(Ddp, FollowsPyTorch) {
  namespace nn = torch::nn;
  const auto golden = nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/ddp.json"));
  const auto pixels = golden.at("pixels").get<std::vector<std::uint8_t>>();
  const auto labels = golden.at("labels").get<std::vector<std::int64_t>>();
  const auto features = torch::tensor(pixels, torch::kUInt8)
                            .view({static_cast<std::int64_t>(labels.size()), 1, 8, 8})
                            .to(torch::kFloat32) /
                        255;
  const auto dataset = std::make_shared<data::TensorDataset>(features, torch::tensor(labels));
  for (const auto& one : golden.at("cases")) {
    const auto name = one.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const nn::Sequential model =
        name == "linear"
            ? nn::Sequential(nn::Flatten(), nn::Linear(64, 10))
            : nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::BatchNorm2d(4),
                             nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64, 10));
    const auto tensors = [&](const char* which) {
      std::map<std::string, torch::Tensor> found;
      for (const auto& [key, value] : one.at(which).items()) {
        found[key] = torch::tensor(value.at("values").get<std::vector<double>>(), torch::kFloat64)
                         .view(value.at("shape").get<std::vector<std::int64_t>>());
      }
      return found;
    };
    TrainOptions options;
    options.model = model;
    for (auto& [key, weight] : options.model.weights()) {
      torch::NoGradGuard no_grad;
      torch::Tensor(weight).copy_(tensors("initial").at(key));
    }
    options.criterion = nn::CrossEntropyLoss();
    if (name == "linear") {
      options.optimizer = optim::Adam{.lr = 0.02};
    } else {
      options.optimizer = optim::SGD{.lr = 0.05, .momentum = 0.9};
    }
    options.loaders = {{"train",
                        {dataset,
                         {.batch_size = 8,
                          .sampler = std::make_shared<data::DistributedSampler>(
                              dataset->size(), data::DistributedSamplerOptions{.seed = 42})}}}};
    options.num_epochs = 8;
    options.console = false;
    options.ddp = true;
    options.workers = 2;
    // Rank 0 sees its own losses.
    std::vector<double> losses;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [&](State& s) {
      losses.push_back(s.batch_metrics.at("loss"));
      if (s.progress.batch_step == 100) s.request_loader_end();
    };
    options.callbacks = {hooks};
    toy::train(options);
    const auto expected = one.at("losses");
    ASSERT_EQ(losses.size(), 100U);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double theirs = expected[i][0].get<double>();
      EXPECT_NEAR(losses[i], theirs, 1e-4 * std::max(1.0, theirs)) << "step " << i;
    }
    for (const auto& [key, weight] : options.model.weights()) {
      const auto theirs = tensors("final").at(key);
      EXPECT_TRUE(torch::allclose(weight.to(torch::kFloat64), theirs, 1e-4, 1e-5)) << key;
    }
  }
}

}  // namespace
}  // namespace lockstep
