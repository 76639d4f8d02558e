// Training of several networks, losses and optimizers, end to end, on a small problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/state/hash.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/random.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using testing::ElementsAre;
using testing::HasSubstr;

torch::Tensor judged(const torch::Tensor& logits, double as) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, as));
}

// A generator and a discriminator. The names of the phases are those of the optimizers.
struct Gan : Runner {
  void handle_batch(State& s) override {
    const auto real = s.batch["features"];
    const auto made = s.models["generator"](torch::randn({real.size(0), 2}));
    const Model& discriminator = s.models["discriminator"];
    s.set_loss(s.phase == "discriminator"
                   ? judged(discriminator(real), 1) + judged(discriminator(made), 0)
                   : judged(discriminator(made), 1));
    calls.push_back(s.phase);
  }
  std::vector<std::string> calls;
};

// Both networks have batch norm, whose buffers every phase changes, and one has dropout.
Named<Model> gan_networks(std::uint64_t seed = 7) {
  manual_seed(seed);
  return {{"generator",
           nn::Sequential(nn::Linear(2, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 4))},
          {"discriminator", nn::Sequential(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::LeakyReLU(),
                                           nn::Dropout(0.2), nn::Linear(8, 1))}};
}

TrainOptions gan_options() {
  TrainOptions options;
  options.models = gan_networks();
  options.optimizers = {{"generator", optim::Adam{.lr = 0.01}},
                        {"discriminator", optim::SGD{.lr = 0.05, .momentum = 0.9}}};
  options.phases = {"discriminator", "generator"};
  options.loaders = toy::loaders();
  options.num_epochs = 3;
  options.valid_loader = "valid";
  options.console = false;
  return options;
}

struct GanSetup {
  int workers = 1;
  std::string backend = "auto";
  bool share_updates = true;
  int shards = 2;
};

std::shared_ptr<Engine> gan_engine(const GanSetup& setup) {
  return std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = setup.workers,
                                     .shards = setup.shards,
                                     .backend = setup.backend,
                                     .share_updates = setup.share_updates,
                                     .timeout = std::chrono::seconds(60)});
}

// Trains with one worker and with two, in all ways in which they exchange gradients.
template <typename R = Gan>
void expect_same_bits(const std::function<void(TrainOptions&)>& change = [](TrainOptions&) {}) {
  const auto train = [&](const GanSetup& setup) {
    TrainOptions options = gan_options();
    options.engine = gan_engine(setup);
    change(options);
    return R().train(options);
  };
  const auto alone = train({});
  for (const GanSetup& setup : {GanSetup{.workers = 2}, GanSetup{.workers = 2, .backend = "gloo"},
                                GanSetup{.workers = 2, .share_updates = false}}) {
    SCOPED_TRACE(fmt::format("over {}, share_updates {}", setup.backend, setup.share_updates));
    const auto both = train(setup);
    EXPECT_EQ(both.weights_hash, alone.weights_hash);
    EXPECT_EQ(both.history, alone.history) << "every metric of every epoch, to the bit";
  }
}

TEST(Networks, TwoPhasesHaveTheSameBitsForAnyNumberOfWorkers) {
  expect_same_bits();
}

TEST(Networks, EveryOptionOfTheStepHasTheSameBitsForAnyNumberOfWorkers) {
  expect_same_bits([](TrainOptions& o) { o.accumulation_steps = 2; });
  expect_same_bits([](TrainOptions& o) { o.clip_grad_norm = 0.1; });
  expect_same_bits([](TrainOptions& o) {
    o.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
    o.accumulation_steps = 3;
    o.scheduler = optim::ExponentialLR{.gamma = 0.9, .per = optim::Per::kBatch};
  });
  expect_same_bits([](TrainOptions& o) {
    o.optimizers.set("generator", [](std::vector<torch::Tensor> parameters) {
      return std::make_unique<torch::optim::SGD>(parameters, 0.1);
    });
  });
}

// An encoder and a decoder with one loss; each has its own optimizer.
struct Autoencoder : Runner {
  void handle_batch(State& s) override {
    EXPECT_EQ(s.phase, "");
    const auto x = s.batch["features"];
    s.set_loss(torch::mse_loss(s.models["decoder"](s.models["encoder"](x)), x));
  }
};

TEST(Networks, TwoOptimizersOnOneLossHaveTheSameBitsForAnyNumberOfWorkers) {
  expect_same_bits<Autoencoder>([](TrainOptions& o) {
    manual_seed(3);
    o.models = {{"encoder", nn::Sequential(nn::Linear(4, 300), nn::Tanh(), nn::Linear(300, 2))},
                {"decoder", nn::Sequential(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 4))}};
    o.optimizers = {{"encoder", optim::Adam{.lr = 0.01}}, {"decoder", optim::SGD{.lr = 0.1}}};
    o.phases = {};
    o.clip_grad_norm = 0.5;
  });
}

// The same training without Lockstep: the same order, the same seeds, LibTorch's own optimizers.
TEST(Networks, FollowALoopWrittenByHandToTheBit) {
  const auto make = [] {
    manual_seed(3);
    return std::pair(nn::Sequential(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 4)),
                     nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1)));
  };
  const auto sgd = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.1).momentum(0.9));
  };
  auto [our_generator, our_discriminator] = make();
  const auto dataset = toy::points(50);
  TrainOptions options = gan_options();
  options.models = {{"generator", our_generator}, {"discriminator", our_discriminator}};
  options.optimizers = {{"generator", sgd}, {"discriminator", sgd}};
  options.loaders = {{"train", {dataset, {.batch_size = 8, .shuffle = true}}}};
  options.valid_loader.reset();
  Gan().train(options);

  auto [generator, discriminator] = make();
  const auto of_generator = sgd(generator->parameters());
  const auto of_discriminator = sgd(discriminator->parameters());
  const data::Loader loader(dataset, {.batch_size = 8, .shuffle = true});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    std::int64_t index = 0;
    for (Batch& batch : loader.stream({.seed = 42, .epoch = epoch})) {
      const auto real = batch["features"];
      DrawKey key{.seed = 42, .epoch = epoch, .batch = index++};
      seed_draws(key);
      auto made = generator->forward(torch::randn({real.size(0), 2})).detach();
      of_discriminator->zero_grad();
      (judged(discriminator->forward(real), 1) + judged(discriminator->forward(made), 0))
          .backward();
      of_discriminator->step();
      key.phase = 1;
      seed_draws(key);
      made = generator->forward(torch::randn({real.size(0), 2}));
      of_generator->zero_grad();
      judged(discriminator->forward(made), 1).backward();
      of_generator->step();
    }
  }
  const auto expect_equal = [](nn::Sequential& ours, nn::Sequential& theirs) {
    for (std::size_t i = 0; i < theirs->parameters().size(); ++i) {
      EXPECT_TRUE(ours->parameters()[i].equal(theirs->parameters()[i])) << i;
    }
  };
  expect_equal(our_generator, generator);
  expect_equal(our_discriminator, discriminator);
}

// The first phase has the numbers of a run without phases, and its own networks only are changed.
TEST(Networks, APhaseLeavesTheOtherNetworksAlone) {
  struct Watcher : Gan {
    void handle_batch(State& s) override {
      Gan::handle_batch(s);
      if (!s.is_train) return;
      for (const auto& [name, network] : s.models) {
        for (const auto& [ignored, parameter] : network.parameters()) {
          EXPECT_EQ(parameter.requires_grad(), name == s.phase) << name << " in " << s.phase;
        }
      }
    }
  };
  TrainOptions options = gan_options();
  Watcher().train(options);
  for (const auto& [name, parameter] : options.models["generator"].parameters()) {
    EXPECT_TRUE(parameter.requires_grad()) << "restored";
  }
  struct Failing : Gan {
    void handle_batch(State& s) override {
      if (s.phase == "generator") throw Error("boom");
      Gan::handle_batch(s);
    }
  };
  EXPECT_THAT(toy::error_of([&] { Failing().train(options); }),
              testing::AllOf(HasSubstr("phase 'generator'"), testing::EndsWith("boom")));
  for (const auto& [name, parameter] : options.models["discriminator"].parameters()) {
    EXPECT_TRUE(parameter.requires_grad()) << "restored after an exception";
  }
}

TEST(Networks, HooksAreCalledOncePerBatchAndInEveryPhase) {
  TrainOptions options = gan_options();
  options.num_epochs = 1;
  options.loaders = {{"train", {toy::points(8), {.batch_size = 8}}}};
  options.valid_loader.reset();
  std::vector<std::string> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State&) { seen.push_back("start"); };
  hooks->forward = [&](State& s) { seen.push_back("forward " + s.phase); };
  hooks->backward = [&](State& s) { seen.push_back("backward " + s.phase); };
  hooks->batch_end = [&](State&) { seen.push_back("end"); };
  hooks->step = [&](State& s) {
    seen.push_back("step");
    EXPECT_THAT(s.stepped, ElementsAre("discriminator", "generator"));
  };
  options.callbacks = {hooks};
  Gan().train(options);
  EXPECT_THAT(seen, ElementsAre("start", "forward discriminator", "backward discriminator",
                                "forward generator", "backward generator", "end", "step"));
}

TEST(Networks, APhaseTakesPlaceInEveryNthBatchOfTheRun) {
  TrainOptions options = gan_options();
  options.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
  options.num_epochs = 2;
  options.loaders = {{"train", {toy::points(6), {.batch_size = 2}}}};
  options.valid_loader.reset();
  Gan runner;
  runner.train(options);
  const std::string d = "discriminator", g = "generator";
  EXPECT_THAT(runner.calls, ElementsAre(d, d, g, d, d, g, d, d, g)) << "3 batches in an epoch";
}

TEST(Networks, MetricsHaveTheNamesOfPhasesAndOptimizers) {
  TrainOptions options = gan_options();
  options.schedulers = {{"generator", optim::ExponentialLR{.gamma = 0.5}}};
  options.clip_grad_norm = 1;
  const auto result = Gan().train(options);
  const Metrics& train = result.last_metrics.at("train");
  EXPECT_DOUBLE_EQ(train.at("loss"), train.at("loss/discriminator") + train.at("loss/generator"));
  EXPECT_DOUBLE_EQ(train.at("lr/generator"), 0.01 / 4);
  EXPECT_DOUBLE_EQ(train.at("lr/discriminator"), 0.05);
  EXPECT_GT(train.at("gradient/norm/generator"), 0);
  EXPECT_FALSE(train.contains("lr"));
  EXPECT_EQ(result.best_metric, result.best_metrics.at("valid").at("loss"));
  EXPECT_EQ(result.last_metrics.at(kEpochKey).count("lr/generator"), 1u);
}

// Per batch, a scheduler follows the steps of its own optimizer.
TEST(Networks, ASchedulerStepsWithItsOptimizer) {
  TrainOptions options = gan_options();
  options.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
  options.num_epochs = 1;
  options.loaders = {{"train", {toy::points(8), {.batch_size = 2}}}};
  options.valid_loader.reset();
  options.scheduler = optim::ExponentialLR{.gamma = 0.5, .per = optim::Per::kBatch};
  const auto result = Gan().train(options);
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr/discriminator"), 0.05 / 16);
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr/generator"), 0.01 / 4);
}

// The only update of the generator in an epoch is at its last occurrence, before the last batch.
TEST(Networks, ASchedulerSeesAnUpdateThatAccumulatesToTheEndOfAnEpoch) {
  TrainOptions options = gan_options();
  options.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
  options.accumulation_steps = 2;
  options.num_epochs = 1;
  options.loaders = {{"train", {toy::points(6), {.batch_size = 2}}}};
  options.valid_loader.reset();
  options.scheduler = optim::ExponentialLR{.gamma = 0.5, .per = optim::Per::kBatch};
  const auto result = Gan().train(options);
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr/discriminator"), 0.05 / 4);
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr/generator"), 0.01 / 2);
}

// on_batch_start is no part of a phase, so parameters are as the user left them.
TEST(Networks, FreezingBeforeABatchIsObeyedInEveryPhase) {
  struct Outcome {
    bool is_trained = false;  // the first layer of the generator
    std::string hash;
  };
  const auto train = [](bool frozen_at_first, bool frozen_in_batches) {
    TrainOptions options = gan_options();
    NamedTensors layer = options.models["generator"].parameters();
    layer.resize(2);  // weight and bias
    const auto freeze = [layer](bool frozen) {
      for (const auto& [name, parameter] : layer) parameter.set_requires_grad(!frozen);
    };
    freeze(frozen_at_first);
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_start = [=](State& s) {
      if (s.is_train) freeze(frozen_in_batches);
    };
    options.callbacks = {hooks};
    options.engine = gan_engine({});
    const auto before = weights_hash(layer);
    const auto result = Gan().train(options);
    return Outcome{.is_trained = weights_hash(layer) != before, .hash = result.weights_hash};
  };
  EXPECT_FALSE(train(false, true).is_trained) << "frozen before the first batch";
  const Outcome unfrozen = train(true, false);
  EXPECT_TRUE(unfrozen.is_trained) << "unfrozen before the first batch";
  EXPECT_EQ(unfrozen.hash, train(false, false).hash) << "it has no gradient of another phase";
}

// All that a phase trains may be frozen for some batches.
TEST(Networks, APhaseMayHaveNothingToTrainForSomeBatches) {
  TrainOptions options = gan_options();
  const NamedTensors parameters = options.models["generator"].parameters();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_start = [parameters](State& s) {
    for (const auto& [name, parameter] : parameters) {
      parameter.set_requires_grad(s.progress.epoch != 2);
    }
  };
  std::vector<std::string> hashes;
  hooks->epoch_end = [&](State&) { hashes.push_back(weights_hash(parameters)); };
  options.callbacks = {hooks};
  Gan().train(options);
  EXPECT_EQ(hashes.at(0), hashes.at(1)) << "frozen in the second epoch";
  EXPECT_NE(hashes.at(1), hashes.at(2)) << "trained again in the third epoch";
}

// A batch of lists has no tensor that shows the number of samples, and the loss is not one.
TEST(Networks, ABatchOfListsIsTrainedAsABatchOfTensors) {
  struct Listed : Runner {
    void handle_batch(State& s) override {
      const bool is_list = s.batch.find_list("features") != nullptr;
      const auto stacked = [&](const char* key) {
        return is_list ? torch::stack(s.batch.list(key)) : s.batch[key];
      };
      s.set_loss(torch::cross_entropy_loss(s.model(stacked("features")), stacked("targets")));
    }
  };
  const auto train = [](data::Collate collate) {
    TrainOptions options = toy::options();
    options.criterion = {};
    options.loaders = {{"train", {toy::points(50), {.batch_size = 8, .collate = collate}}}};
    options.valid_loader.reset();
    options.engine = gan_engine({});
    return Listed().train(options);
  };
  const auto tensors = train({});
  const auto lists = train(data::lists({"features", "targets"}));
  EXPECT_EQ(lists.weights_hash, tensors.weights_hash);
  EXPECT_EQ(lists.history, tensors.history);
}

TEST(Networks, EvaluationGoesThroughThePhasesOfTheTraining) {
  TrainOptions options = gan_options();
  options.phases = {"discriminator", Phase{.name = "generator", .every = 5}};
  Gan runner;
  runner.train(options);
  const Metrics found = runner.evaluate_loader({.loader = options.loaders.at("valid")});
  EXPECT_TRUE(std::isfinite(found.at("loss/generator")));
  EXPECT_DOUBLE_EQ(found.at("loss"), found.at("loss/discriminator") + found.at("loss/generator"));
  EXPECT_EQ(Gan()
                .evaluate_loader({.loader = options.loaders.at("valid"),
                                  .models = options.models,
                                  .phases = {"discriminator", "generator"}})
                .at("loss"),
            found.at("loss"))
      << "another runner, told the same";
}

// A student learns from a teacher, which has no optimizer.
struct Distillation : Runner {
  void handle_batch(State& s) override {
    EXPECT_FALSE(s.models["teacher"].is_training());
    const auto expected = s.models["teacher"](s.batch["features"]);
    EXPECT_FALSE(expected.requires_grad());
    EXPECT_EQ(s.models["student"].is_training(), s.is_train);
    s.set_loss(torch::mse_loss(s.models["student"](s.batch["features"]), expected));
  }
};

TEST(Networks, ATeacherIsNotTouched) {
  for (const int workers : {1, 2}) {
    TrainOptions options = gan_options();
    const Model teacher = toy::model(1), student = toy::model(2);
    options.models = {{"student", student}, {"teacher", teacher}};
    options.optimizers = {{"student", optim::Adam{.lr = 0.02}}};
    options.phases = {};
    options.num_epochs = 10;
    options.engine = gan_engine({.workers = workers});
    const std::string before = weights_hash(teacher.weights());
    const auto result = Distillation().train(options);
    EXPECT_EQ(weights_hash(teacher.weights()), before) << "also its running statistics";
    EXPECT_TRUE(teacher.is_training()) << "restored";
    EXPECT_TRUE(teacher.parameters()[0].second.requires_grad()) << "restored";
    EXPECT_LT(result.history.at(10).at("train").at("loss"),
              result.history.at(1).at("train").at("loss"));
    EXPECT_EQ(result.last_metrics.at("train").count("lr"), 1u) << "one optimizer";
  }
}

struct PowerCut {
  std::function<void(TrainOptions&)> change;  // of the options
  std::int64_t batch = 1;                     // of the second epoch
};

TrainOptions options_for(const PowerCut& how, std::uint64_t seed = 7) {
  TrainOptions options = gan_options();
  options.models = gan_networks(seed);
  how.change(options);
  return options;
}

// Runs until a callback throws in the middle of the second epoch, and resumes.
std::string hash_after(const PowerCut& how, const fs::path& logdir) {
  auto stop = std::make_shared<toy::Hooks>();
  stop->batch_end = [&](State& s) {
    const bool is_there = s.is_train && s.progress.epoch == 2 && s.loader_batch == how.batch;
    if (is_there) throw Error("power cut");
  };
  TrainOptions first = options_for(how);
  first.logdir = logdir;
  first.callbacks = {stop, CheckpointCallback({.save_every_batches = 1})};
  EXPECT_THAT(toy::error_of([&] { Gan().train(first); }), HasSubstr("power cut"));
  const auto run = checkpoint::load(logdir / "checkpoints/last.pth").get<StateDict>("run");
  EXPECT_EQ(run.get<std::string>("loader"), "train") << "inside an epoch";
  TrainOptions second = options_for(how, /*seed=*/99);
  second.logdir = logdir;
  second.resume = "last";
  return Gan().train(second).weights_hash;
}

TEST(Networks, ResumeInsideAnEpochIsExact) {
  const auto with = [](const GanSetup& setup) {
    return [setup](TrainOptions& o) { o.engine = gan_engine(setup); };
  };
  const auto sparse = [](TrainOptions& o) {
    o.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
    o.accumulation_steps = 2;
    o.schedulers = {{"generator", optim::ExponentialLR{.gamma = 0.9}}};
  };
  const std::vector<PowerCut> all = {
      {.change = [](TrainOptions&) {}, .batch = 5},
      {.change = sparse, .batch = 5},
      {.change = with({.workers = 2}), .batch = 3},
      {.change = with({.workers = 2, .backend = "gloo"}), .batch = 3}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    const TemporaryDirectory folder;
    EXPECT_EQ(hash_after(all[i], folder / "run"), Gan().train(options_for(all[i])).weights_hash);
  }
}

TEST(Networks, ACheckpointHasTheNamesOfNetworksAndOptimizers) {
  const TemporaryDirectory folder;
  TrainOptions options = gan_options();
  options.logdir = folder / "run";
  options.schedulers = {{"generator", optim::ExponentialLR{.gamma = 0.9}}};
  const StateDict saved = checkpoint::load(*Gan().train(options).last_checkpoint);
  EXPECT_TRUE(saved.get<StateDict>("model_state_dict").contains("generator.0.weight"));
  const auto optimizers = saved.get<StateDict>("optimizer_state_dict");
  EXPECT_THAT(optimizers.keys(), ElementsAre("generator", "discriminator"));
  EXPECT_EQ(optimizers.get<StateDict>("discriminator").get<std::string>("name"), "SGD");
  EXPECT_THAT(saved.get<StateDict>("scheduler_state_dict").keys(), ElementsAre("generator"));
  EXPECT_EQ(saved.get<StateDict>("run").get<std::string>("phases"), "discriminator, generator");
  EXPECT_EQ(saved.get<StateDict>("lr").get<double>("discriminator"), 0.05);
}

TEST(Networks, ACheckpointOfOtherPartsIsRefused) {
  const TemporaryDirectory folder;
  TrainOptions options = gan_options();
  options.logdir = folder / "run";
  Gan().train(options);
  options.num_epochs = 4;
  options.resume = "last";
  TrainOptions one = options;
  one.optimizers = {};
  one.phases = {};
  one.optimizer = optim::Adam{.lr = 0.01};
  EXPECT_THAT(toy::error_of([&] { Gan().train(one); }),
              HasSubstr("had the optimizers generator, discriminator"));
  TrainOptions changed = options;
  changed.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
  const toy::Warnings warnings;
  Gan().train(changed);
  EXPECT_THAT(warnings.texts,
              ElementsAre(HasSubstr("had the phases discriminator, generator, this run has "
                                    "discriminator, generator (every 2)")));
}

TEST(Networks, TheBestEpochsWeightsAreLoadedIntoAllNetworks) {
  TrainOptions options = gan_options();
  options.load_best_on_end = true;
  std::string best;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [&](State& s) {
    if (s.loader != "valid") return;
    s.loader_metrics["loss"] = std::vector{0.9, 0.1, 0.5}[s.progress.epoch - 1];
    if (s.progress.epoch == 2) best = weights_hash(s.model.weights());
  };
  options.callbacks = {hooks};
  const auto result = Gan().train(options);
  EXPECT_EQ(weights_hash(result.model.weights()), best);
  EXPECT_EQ(weights_hash(Model::combine(options.models).weights()), best);
}

TEST(Networks, WhatNeedsOneNetworkOrOptimizerSaysSo) {
  EXPECT_THAT(toy::error_of([] { SupervisedRunner().train(gan_options()); }),
              HasSubstr("derive from Runner"));
  TrainOptions options = gan_options();
  options.callbacks = {LRFinderCallback()};
  EXPECT_THAT(toy::error_of([&] { Gan().train(options); }), HasSubstr("2 optimizers"));
  struct Wrong : Runner {
    void handle_batch(State& s) override { s.models["genrator"](s.batch["features"]); }
  };
  EXPECT_THAT(toy::error_of([&] { Wrong().train(gan_options()); }),
              HasSubstr("models: no 'genrator'; did you mean 'generator'?"));
}

TEST(Networks, ASupervisedRunnerTakesASingleNetworkByName) {
  TrainOptions options = toy::options();
  const auto plain = toy::train(options);
  options.model = {};
  options.models = {{"net", toy::model()}};
  const auto named = toy::train(options);
  EXPECT_EQ(named.history, plain.history);
  EXPECT_EQ(named.model.parameters().front().first, "net.0.weight");
}

// A runner may make its parts itself.
TEST(Networks, EveryPartCanBeOverridden) {
  struct Own : Gan {
    Named<Model> get_models() override { return gan_networks(); }
    Named<optim::OptimizerSpec> get_optimizers() override { return gan_options().optimizers; }
    Named<optim::SchedulerSpec> get_schedulers() override {
      return {{"generator", optim::ExponentialLR{.gamma = 0.5}}};
    }
    Named<Criterion> get_criterions() override { return {{"mse", nn::MSELoss()}}; }
    Phases get_phases() override { return {"discriminator", "generator"}; }
    void handle_batch(State& s) override {
      EXPECT_TRUE(s.criterions.contains("mse"));
      Gan::handle_batch(s);
    }
  };
  const auto result = Own().train({.loaders = toy::loaders(), .num_epochs = 2, .console = false});
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr/generator"), 0.01 / 2);
}

// Makes its networks itself.
struct OwnNetworks : Gan {
  Named<Model> get_models() override {
    ++made;
    return gan_networks();
  }
  int made = 0;
};

TEST(Networks, NetworksGoOnFromStageToStage) {
  TrainOptions second = gan_options();
  second.models = {};
  second.num_epochs = 1;
  TrainOptions first = gan_options();
  const Model generator = first.models["generator"];
  const auto given = Gan().train_stages({{"first", first}, {"second", second}});
  EXPECT_TRUE(
      given.models["generator"].parameters()[0].second.is_same(generator.parameters()[0].second));

  first.models = {};
  OwnNetworks runner;
  const auto own = runner.train_stages({{"first", first}, {"second", second}});
  EXPECT_EQ(runner.made, 1);
  EXPECT_EQ(own.weights_hash, given.weights_hash);
}

// The train loader has 7 batches.
TEST(Networks, AStepIsAnUpdateOfThePhasesOfEveryBatch) {
  TrainOptions options = gan_options();
  options.phases = {Phase{.name = "generator", .every = 2}, "discriminator"};
  options.num_epochs = 1;
  options.num_steps = 10;
  const auto result = Gan().train(options);
  EXPECT_EQ(result.steps, 10);
  EXPECT_EQ(result.epochs, 2);
}

// More steps than the schedule has would be an error.
TEST(Networks, AScheduleHasTheStepsOfItsPhase) {
  for (const std::int64_t accumulation_steps : {1, 3}) {
    TrainOptions options = gan_options();
    options.phases = {"discriminator", Phase{.name = "generator", .every = 2}};
    options.accumulation_steps = accumulation_steps;
    options.scheduler = optim::OneCycleLR{.max_lr = 0.01, .cycle_momentum = false};
    EXPECT_EQ(Gan().train(options).epochs, 3);
    options.models = gan_networks();
    options.num_epochs = 1;
    options.num_steps = 8;
    EXPECT_EQ(Gan().train(options).steps, 8);
  }
}

TEST(Networks, ContinueTrainingIsOneLongerRun) {
  TrainOptions options = gan_options();
  const auto straight = Gan().train(options);
  options.models = gan_networks();
  options.num_epochs = 1;
  options.keep_run = true;
  Gan runner;
  runner.train(options);
  const auto longer = runner.continue_training({.num_epochs = 3});
  EXPECT_EQ(longer.weights_hash, straight.weights_hash);
  EXPECT_EQ(longer.history, straight.history);
}

}  // namespace
}  // namespace lockstep
