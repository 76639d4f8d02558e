#include "lockstep/recipe/recipe.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/config/override.h"
#include "lockstep/recipe/noise.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/state/hash.h"
#include "lockstep/transform/mix.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

const char* const kConfig = R"(
model:
  - Flatten
  - Linear: {out_features: 8}
  - ReLU
  - Dropout: {p: 0.5}
  - Linear: {out_features: 3}
criterion: CrossEntropyLoss
optimizer: {_target_: Adam, lr: 0.01}
scheduler: {_target_: StepLR, step_size: 1}
loaders:
  train:
    dataset: {_target_: Noise, samples: 40, shape: [2, 4], classes: 3, seed: 1}
    batch_size: 8
    shuffle: true
  valid:
    dataset: {_target_: Noise, samples: 16, shape: [2, 4], classes: 3, seed: 2}
    batch_size: 8
callbacks:
  - AccuracyCallback: {num_classes: 3}
num_epochs: 2
valid_loader: valid
console: false
)";

config::Node config_with(const std::vector<std::string>& overrides = {}) {
  config::Node document = config::parse_yaml(kConfig, "a.yml");
  for (const auto& argument : overrides) config::apply_override(document, argument);
  return document;
}

// The same training in C++.
std::string hash_from_cpp(std::uint64_t seed) {
  namespace nn = torch::nn;
  torch::manual_seed(seed);
  nn::Sequential model;
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(8, 8));
  model->push_back(nn::ReLU());
  model->push_back(nn::Dropout(0.5));
  model->push_back(nn::Linear(8, 3));
  SupervisedRunner runner;
  return runner
      .train({.model = model,
              .criterion = nn::CrossEntropyLoss(),
              .optimizer = optim::Adam{.lr = 0.01},
              .scheduler = optim::StepLR{.step_size = 1},
              .loaders = {{"train",
                           {noise({.samples = 40, .shape = {2, 4}, .classes = 3, .seed = 1}),
                            {.batch_size = 8, .shuffle = true}}},
                          {"valid",
                           {noise({.samples = 16, .shape = {2, 4}, .classes = 3, .seed = 2}),
                            {.batch_size = 8}}}},
              .seed = seed,
              .num_epochs = 2,
              .valid_loader = "valid",
              .console = false})
      .weights_hash;
}

TEST(Recipe, TrainsToTheBitsOfTheSameProgramInCpp) {
  EXPECT_EQ(run_recipe(read_recipe(config_with())).weights_hash, hash_from_cpp(42));
  EXPECT_EQ(run_recipe(read_recipe(config_with({"seed=7"}))).weights_hash, hash_from_cpp(7));
  EXPECT_NE(hash_from_cpp(42), hash_from_cpp(7));
}

TEST(Recipe, TheEngineCanBeMadeAlone) {
  EXPECT_EQ(read_engine(config_with())->workers(), 1);
  EXPECT_EQ(read_engine(config_with({"ddp=true", "workers=2"}))->workers(), 2);
  EXPECT_EQ(
      read_engine(config_with({"engine={_target_: DistributedDataParallelEngine, workers: 3}"}))
          ->workers(),
      3);
  EXPECT_THROW(read_engine(config_with({"workers=2"})), ConfigError) << "it needs ddp";
}

// The sizes of layers are taken from the data, as for a SupervisedRunner.
TEST(Recipe, AveragedWeightsAreEvaluatedAndSaved) {
  const TemporaryDirectory folder;
  const auto metrics_with = [&](const std::string& callbacks, const std::string& name) {
    return run_recipe(read_recipe(config_with({"callbacks=" + callbacks, "num_epochs=3",
                                               "logdir=" + (folder / name).string()})))
        .last_metrics.at("valid");
  };
  const Metrics plain = metrics_with("[]", "plain");
  const Metrics ema = metrics_with("[{EmaCallback: {decay: 0.9}}]", "ema");
  const Metrics swa = metrics_with("[{SwaCallback: {start_epoch: 2}}]", "swa");
  EXPECT_NE(plain.at("loss"), ema.at("loss"));
  EXPECT_NE(plain.at("loss"), swa.at("loss"));
  const StateDict last = checkpoint::load(folder / "ema/checkpoints/last.pth");
  // The trained weights are those of the run without an average.
  EXPECT_EQ(content_hash(last.get<StateDict>("raw_model_state_dict")),
            content_hash(checkpoint::load(folder / "plain/checkpoints/last.pth")
                             .get<StateDict>("model_state_dict")));
}

TEST(Recipe, GradientsAreMeasured) {
  const TemporaryDirectory folder;
  const auto result = run_recipe(read_recipe(
      config_with({"callbacks=[{GradientNormsCallback: {names: 1.*}}, {HistogramsCallback: {}}]",
                   "num_epochs=1", "logdir=" + (folder / "run").string()})));
  std::vector<std::string> norms;
  for (const auto& [name, value] : result.last_metrics.at("train")) {
    if (name.find("1.weight") == std::string::npos) continue;
    norms.push_back(name);
    EXPECT_GT(value, 0) << name;
  }
  EXPECT_FALSE(norms.empty());
  EXPECT_TRUE(std::filesystem::exists(folder / "run/tensorboard/train/histograms"))
      << "no folder of histograms";
}

TEST(Recipe, ABatchCanEndARun) {
  const auto result = run_recipe(read_recipe(config_with(
      {"callbacks=[{EarlyStoppingCallback: {metric: train/loss, patience: 1, min_delta: 100, per: "
       "batch}}]",
       "num_epochs=5"})));
  EXPECT_EQ(result.history.size(), 1u);
}

TEST(Recipe, PartsOfACheckpointAreRestored) {
  const TemporaryDirectory folder;
  const std::string logdir = (folder / "run").string();
  run_recipe(read_recipe(config_with({"logdir=" + logdir})));
  const std::string file = logdir + "/checkpoints/last.pth";
  const auto hash_with = [&](const std::string& restore) {
    return run_recipe(read_recipe(config_with({"weights=" + file, "restore=" + restore})))
        .weights_hash;
  };
  EXPECT_NE(hash_with("{}"), hash_with("{optimizer: " + file + "}"));
  EXPECT_THAT(error_of([&] { hash_with("{optimizer: none.pth}"); }),
              AllOf(HasSubstr("restore: "), HasSubstr("none.pth")));
}

TEST(Recipe, TrainsWithoutTargets) {
  config::Node document = config_with({"callbacks="});
  const config::Node other = config::parse_yaml(
      "runner: {SelfSupervisedRunner: {augment: {GaussianNoise: {std: 0.1}}}}\n"
      "criterion: {NTXentLoss: {temperature: 0.5}}\nscheduler: null\nnum_epochs: 25\n",
      "b.yml");
  config::merge(document, other);
  const auto result = run_recipe(read_recipe(document));
  EXPECT_LT(result.last_metrics.at("train").at("loss"),
            result.history.at(1).at("train").at("loss"));
  document.erase("criterion");
  EXPECT_THAT(error_of([&] { read_recipe(document); }), HasSubstr("criterion is missing"));
}

TEST(Recipe, ArgsAreAnotherPlaceForTheSameKeys) {
  config::Node document = config_with();
  document.erase("num_epochs");
  config::apply_override(document, "args={num_epochs: 1, seed: 7}");
  const Recipe recipe = read_recipe(document);
  EXPECT_EQ(recipe.stages[0].options.num_epochs, 1);
  EXPECT_EQ(recipe.stages[0].options.seed, 7u);
  EXPECT_THAT(error_of([] { read_recipe(config_with({"args={num_epochs: 1}"})); }),
              HasSubstr("given twice"));
}

TEST(Recipe, StagesGoOnWithTheModelAndAreLaidOverTheRest) {
  const TemporaryDirectory folder;
  const Recipe recipe =
      read_recipe(config_with({"logdir=" + (folder / "run").string(),
                               "stages={first: {num_epochs: 1}, second: {optimizer: {_target_: "
                               "SGD, lr: 0.0}, scheduler: }}"}));
  ASSERT_EQ(recipe.stages.size(), 2u);
  EXPECT_EQ(recipe.stages[0].options.num_epochs, 1);
  EXPECT_EQ(recipe.stages[1].options.num_epochs, 2);
  EXPECT_TRUE(recipe.stages[0].options.scheduler.has_value());
  EXPECT_FALSE(recipe.stages[1].options.scheduler.has_value());
  const TrainResult last = run_recipe(recipe);
  // The second stage has a learning rate of zero, so it ends with the weights of the first.
  const auto first = checkpoint::load(folder / "run/first/checkpoints/last.pth")
                         .get<StateDict>("model_state_dict");
  const auto second = checkpoint::load(folder / "run/second/checkpoints/last.pth")
                          .get<StateDict>("model_state_dict");
  EXPECT_TRUE(first.get<torch::Tensor>("1.weight").equal(second.get<torch::Tensor>("1.weight")));
  EXPECT_EQ(last.history.size(), 2u);
}

TEST(Recipe, ACheckpointCarriesItsDocuments) {
  const TemporaryDirectory folder;
  Recipe recipe = read_recipe(config_with({"logdir=" + folder.path().string()}));
  recipe.stages[0].options.documents = {{"config", "seed: 1\n"}};
  run_recipe(recipe);
  EXPECT_EQ(checkpoint::load(folder / "checkpoints/last.pth")
                .get<StateDict>("documents")
                .get<std::string>("config"),
            "seed: 1\n");
}

TEST(Autoresume, FinishedStagesAreTakenAndTheOtherGoesOn) {
  const TemporaryDirectory folder;
  const std::string logdir = "logdir=" + (folder / "run").string();
  const auto recipe_of = [&](int second_epochs) {
    return read_recipe(config_with(
        {logdir, fmt::format("stages={{first: {{num_epochs: 1}}, second: {{num_epochs: {}}}}}",
                             second_epochs)}));
  };
  // There is no earlier run yet, so all stages are trained.
  Recipe fresh = recipe_of(1);
  resume_stages(fresh.stages, "last");
  EXPECT_EQ(fresh.stages.size(), 2u);
  run_recipe(fresh);
  // The first stage is finished, and the second has one more epoch to train.
  Recipe resumed = recipe_of(2);
  resume_stages(resumed.stages, "last");
  ASSERT_EQ(resumed.stages.size(), 1u);
  EXPECT_EQ(resumed.stages[0].name, "second");
  EXPECT_EQ(resumed.stages[0].options.resume, "last");
  const std::string hash = run_recipe(resumed).weights_hash;
  std::filesystem::remove_all(folder / "run");
  EXPECT_EQ(run_recipe(recipe_of(2)).weights_hash, hash) << "straight through";
  Recipe without = read_recipe(config_with());
  EXPECT_THROW(resume_stages(without.stages, "last"), ConfigError);
}

// The train loader has 5 batches.
TEST(Autoresume, KnowsAStageThatCountsSteps) {
  const TemporaryDirectory folder;
  const auto recipe_of = [&](int steps) {
    config::Node document = config_with(
        {"logdir=" + (folder / "run").string(),
         fmt::format("stages={{first: {{num_steps: {}}}, second: {{num_epochs: 1}}}}", steps)});
    document.erase("num_epochs");
    return read_recipe(document);
  };
  run_recipe(recipe_of(7));
  std::filesystem::remove_all(folder / "run/second");
  Recipe same = recipe_of(7);
  resume_stages(same.stages, "last");
  ASSERT_EQ(same.stages.size(), 1u);
  EXPECT_EQ(same.stages[0].name, "second");
  Recipe longer = recipe_of(8);
  resume_stages(longer.stages, "last");
  ASSERT_EQ(longer.stages.size(), 2u);
  EXPECT_EQ(longer.stages[0].options.resume, "last");
  EXPECT_EQ(longer.runner->train(options_of(longer.stages[0])).steps, 1);
}

TEST(Recipe, SetsWhatARunShows) {
  const TrainOptions options =
      read_recipe(config_with({"progress_bars=run", "profile_operators=true"})).stages[0].options;
  EXPECT_EQ(options.progress_bars, ProgressBars::kRun);
  EXPECT_TRUE(options.profile_operators);
  EXPECT_THAT(error_of([] { read_recipe(config_with({"progress_bars=runs"})); }),
              HasSubstr("progress_bars: expected passes or run, got 'runs'"));
}

TEST(Recipe, SetsTheLengthOfARun) {
  config::Node document =
      config_with({"num_steps=7", "steps_per_epoch=3", "valid_every=2",
                   "limit_batches={valid: 1, train: 0.5}", "loaders/train/max_batches=4"});
  document.erase("num_epochs");
  const Recipe recipe = read_recipe(document);
  const TrainOptions& options = recipe.stages[0].options;
  EXPECT_EQ(options.loaders.at("train").options().max_batches, 4);
  EXPECT_EQ(options.limit_batches.at("train"), (std::variant<std::int64_t, double>(0.5)));
  const TrainResult result = run_recipe(recipe);
  EXPECT_EQ(result.steps, 7);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_FALSE(result.history.at(1).contains("valid"));
  EXPECT_TRUE(result.history.at(2).contains("valid"));
  EXPECT_THAT(error_of([] { read_recipe(config_with({"num_steps=7"})); }),
              HasSubstr("num_steps: expected num_steps or num_epochs, got both: 7 and 2"));
  EXPECT_THAT(error_of([] { read_recipe(config_with({"limit_batches={train: 2.5}"})); }),
              HasSubstr("a share above 0"));
}

TEST(Recipe, LogsTheNormOfGradientsIfAsked) {
  const auto metrics = [](const std::vector<std::string>& changes) {
    return run_recipe(read_recipe(config_with(changes))).last_metrics.at("train");
  };
  EXPECT_GT(metrics({"log_gradient_norm=true"}).at("gradient/norm"), 0);
  EXPECT_FALSE(metrics({}).contains("gradient/norm"));
}

// They are built, and take part in the run.
TEST(Recipe, HasAPrecision) {
  const auto options = [](const std::vector<std::string>& changes) {
    return read_recipe(config_with(changes)).stages[0].options;
  };
  EXPECT_EQ(options({}).precision, Precision::kFp32);
  EXPECT_EQ(options({"precision=bf16"}).precision, Precision::kBf16);
  EXPECT_TRUE(options({"amp=true"}).amp);
  const auto scaler = *options({"grad_scaler={init_scale: 8, growth_interval: 5}"}).grad_scaler;
  EXPECT_EQ(scaler, (optim::GradScalerOptions{.init_scale = 8, .growth_interval = 5}));
  const auto metrics =
      run_recipe(read_recipe(config_with({"precision=bf16", "grad_scaler={init_scale: 8}"})))
          .last_metrics.at("train");
  EXPECT_EQ(metrics.at("gradient/scale"), 8);
  EXPECT_EQ(metrics.at("gradient/skipped"), 0);
  EXPECT_THAT(error_of([&] { options({"precision=bf61"}); }),
              HasSubstr("precision: expected fp32, bf16 or fp16, got 'bf61'; did you mean"));
  EXPECT_THAT(error_of([&] {
                options({"precision=bf16", "fp16=true"});
              }),
              HasSubstr("fp16: precision is bf16, which contradicts it"));
  EXPECT_THAT(error_of([&] { options({"grad_scaler={backoff_factor: 2}"}); }),
              HasSubstr("backoff_factor: expected a number between 0 and 1, got 2"));
  EXPECT_EQ(read_evaluation(config_with({"amp=true"})).precision, Precision::kBf16);
  EXPECT_FALSE(read_evaluation(config_with()).precision) << "that of the checkpoint";
}

TEST(Recipe, MakesMetricsFromMetricsAndTransformsBatches) {
  const auto metrics = [](const std::string& callback) {
    return run_recipe(read_recipe(config_with({"callbacks=[" + callback + "]"})))
        .last_metrics.at("valid");
  };
  const Metrics twice = metrics(
      "{MetricAggregationCallback: {metric_key: twice, metrics: [loss], mode: sum, multiplier: "
      "2}}");
  EXPECT_DOUBLE_EQ(twice.at("twice"), 2 * twice.at("loss"));
  const Metrics far =
      metrics("{BatchTransformCallback: {transform: {Normalize: {mean: 5, std: 0.5}}}}");
  EXPECT_NE(far.at("loss"), twice.at("loss"));
}

TEST(Recipe, LeavesOutWeightsOfAFile) {
  const TemporaryDirectory folder;
  run_recipe(read_recipe(config_with({"logdir=" + (folder / "run").string()})));
  const Recipe recipe =
      read_recipe(config_with({"weights=" + (folder / "run/checkpoints/last.pth").string(),
                               "weights_skip=['*.bias', 1.weight]"}));
  EXPECT_EQ(recipe.stages[0].options.weights_skip,
            (std::vector<std::string>{"*.bias", "1.weight"}));
  EXPECT_THAT(error_of([] { read_recipe(config_with({"weights_skip=[fc.*]"})); }),
              HasSubstr("weights_skip: set weights, too"));
}

TEST(Autoresume, AStageThatStoppedEarlyIsNotTrainedAgain) {
  const TemporaryDirectory folder;
  const auto recipe_of = [&] {
    return read_recipe(
        config_with({"logdir=" + (folder / "run").string(),
                     "callbacks=[{EarlyStoppingCallback: {patience: 1, min_delta: 100}}]",
                     "stages={first: {num_epochs: 9}, second: {num_epochs: 9}}"}));
  };
  const std::string hash = run_recipe(recipe_of()).weights_hash;
  Recipe again = recipe_of();
  resume_stages(again.stages, "last");
  ASSERT_EQ(again.stages.size(), 1u);
  EXPECT_EQ(again.stages[0].name, "second");
  EXPECT_EQ(run_recipe(again).weights_hash, hash);
}

// The same from a file: the error also has the line.
struct Written {
  std::string before;
  std::string after;
  std::string place;
};

class BrokenFile : public ::testing::TestWithParam<Written> {};

TEST_P(BrokenFile, IsRefusedAtItsLine) {
  std::string text = kConfig;
  const std::size_t at = text.find(GetParam().before);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().before.size(), GetParam().after);
  EXPECT_THAT(error_of([&] { read_recipe(config::parse_yaml(text, "a.yml")); }),
              HasSubstr(GetParam().place))
      << GetParam().after;
}

INSTANTIATE_TEST_SUITE_P(
    Configs, BrokenFile,
    ::testing::Values(
        Written{"lr: 0.01", "lr: fast", "a.yml:9: optimizer/lr: expected a number"},
        Written{"lr: 0.01", "lr: -1", "a.yml:9: optimizer/lr: expected a number >= 0, got -1"},
        Written{"lr: 0.01", "rate: 1", "a.yml:9: optimizer/rate: unknown key"},
        Written{"  - ReLU", "  - ReLu",
                "a.yml:5: model/2: unknown layer 'ReLu'; did you mean 'ReLU'?"},
        Written{"{p: 0.5}", "{p: x}", "a.yml:6: model/3/Dropout/p: expected a number"},
        Written{"{out_features: 3}", "{in_features: 9, out_features: 3}",
                "a.yml:7: model/4: does not fit an input of Float [1, 8]"},
        Written{"step_size: 1", "step_size: 0", "a.yml:10: scheduler/step_size"},
        Written{"batch_size: 8\n    shuffle", "batch_size: 0\n    shuffle",
                "a.yml:14: loaders/train/batch_size"},
        Written{"num_epochs: 2", "num_epochs: two", "a.yml:21: num_epochs: expected an integer"},
        Written{"num_epochs: 2", "clip_grad_norm: -1", "a.yml:21: clip_grad_norm"},
        Written{"num_epochs: 2", "num_epochs: 2\nnum_epochs: 3",
                "a.yml:22: the key 'num_epochs' comes twice"},
        Written{"valid_loader: valid", "valid_loader: test",
                "a.yml:22: valid_loader: there is no loader 'test'"},
        Written{"{num_classes: 3}", "{num_classes: 2}", "a.yml:20: callbacks/0: "}));

TEST(Recipe, EveryMistakeIsTold) {
  const auto error = error_of([] {
    read_recipe(config_with({"loaders.train.batchsize=3", "optimizer.lr=fast",
                             "callbacks=[Foo, {AUCCallback: {x: 1}}]", "num_epochs=many"}));
  });
  EXPECT_EQ(std::ranges::count(error, '\n'), 4) << "a mistake is reported twice: " << error;
  EXPECT_THAT(error, AllOf(HasSubstr("command line: optimizer/lr: expected a number"),
                           HasSubstr("callbacks/0: unknown callback 'Foo'"),
                           HasSubstr("callbacks/1/AUCCallback/x: unknown key 'x'"),
                           HasSubstr("num_epochs: expected an integer")));
}

// The value is never used, because the stage sets its own. It must be valid nevertheless.
TEST(Recipe, WhatStagesOverrideIsChecked) {
  config::Node document = config_with();
  document.set("num_epochs", config::Node::scalar("-5", true));
  document.set("stages", config::parse_yaml("{a: {num_epochs: 2}}", "a.yml"));
  document.set_paths();
  EXPECT_THAT(error_of([&] { read_recipe(document); }),
              HasSubstr("num_epochs: expected 1 or more, got -5"));
}

// Without this check, a label of -1 is LibTorch's "Target -1 is out of bounds", only in the batch
// that has it.
TEST(Recipe, ATargetBelowZeroIsRefusedBeforeTraining) {
  const TemporaryDirectory folder;
  const auto path = (folder / "labels.pt").string();
  torch::Tensor targets = torch::zeros({16}, torch::kInt64);
  targets[5] = -1;
  checkpoint::save(path, StateDict{{"features", torch::rand({16, 2, 4})}, {"targets", targets}});
  const std::string dataset = "{_target_: TensorFile, path: " + path + "}";
  const auto error = [&](const std::string& criterion) {
    return error_of([&] {
      read_recipe(config_with({"loaders.train.dataset=" + dataset, "criterion=" + criterion}));
    });
  };
  EXPECT_THAT(error("CrossEntropyLoss"),
              AllOf(HasSubstr("loaders/train: class -1 is among the targets"),
                    HasSubstr("outputs for classes 0 to 2"), HasSubstr("ignore_index")));
  EXPECT_EQ(error("{CrossEntropyLoss: {ignore_index: -1}}"), "");
}

// A change of the config, and the text that the error must contain.
struct Mutation {
  std::string change;
  std::string place;
};

void PrintTo(const Mutation& mutation, std::ostream* out) {
  *out << mutation.change;
}

class Broken : public ::testing::TestWithParam<Mutation> {};

TEST_P(Broken, IsRefusedBeforeTrainingAndNamesThePlace) {
  const TemporaryDirectory folder;
  const auto logdir = folder / "logs";
  std::vector<std::string> changes = {"logdir=" + logdir.string()};
  std::istringstream lines(GetParam().change);
  for (std::string line; std::getline(lines, line);) changes.push_back(line);
  config::Node document = config_with(changes);
  spell_out(document);
  const auto error = error_of([&] { run_recipe(read_recipe(document)); });
  EXPECT_THAT(error, ::testing::MatchesRegex("(command line|a.yml:[0-9]+|a.yml): (.|\n)*"))
      << "no place";
  EXPECT_THAT(error, HasSubstr(GetParam().place)) << GetParam().change;
  EXPECT_FALSE(std::filesystem::exists(logdir)) << "something was written";
}

INSTANTIATE_TEST_SUITE_P(
    Configs, Broken,
    ::testing::Values(
        // Keys that do not exist.
        Mutation{"optimzer={}",
                 "optimzer: unknown key 'optimzer'; did you mean 'optimizer' or 'optimizers'?"},
        Mutation{"nmu_epochs=3", "did you mean 'num_epochs'?"},
        Mutation{"optimizer.learning_rate=1", "optimizer/learning_rate: unknown key"},
        Mutation{"loaders.train.batchsize=3", "did you mean 'batch_size'?"},
        Mutation{"loaders.train.dataset.size=3", "loaders/train/dataset/size"},
        Mutation{"scheduler.stepsize=3", "did you mean 'step_size'?"},
        Mutation{"model/1/Linear/outfeatures=3", "model/1/Linear/outfeatures"},
        Mutation{"model/4/Linear/biass=true", "did you mean 'bias'?"},
        Mutation{"callbacks/0/AccuracyCallback/classes=3", "callbacks/0/AccuracyCallback/classes"},
        Mutation{"engine={DeviceEngine: {gpus: 1}}", "engine/gpus: unknown key"},
        Mutation{"runner={SupervisedRunner: {key: x}}", "runner/key: unknown key"},
        // Types that do not fit.
        Mutation{"num_epochs=three", "num_epochs: expected an integer, got the text 'three'"},
        Mutation{"num_epochs=2.5", "num_epochs: expected an integer"},
        Mutation{"seed=-1", "seed: expected an integer from 0"},
        Mutation{"optimizer.lr=fast", "optimizer/lr: expected a number, got the text 'fast'"},
        Mutation{"optimizer.lr=[0.1]", "optimizer/lr: expected a number, got a list"},
        Mutation{"optimizer.amsgrad=1", "optimizer/amsgrad: expected true or false"},
        Mutation{"loaders.train.shuffle=yes", "loaders/train/shuffle: expected true or false"},
        Mutation{"loaders.train.batch_size={}",
                 "loaders/train/batch_size: expected an integer, got an empty mapping"},
        Mutation{"verbose=verbose", "verbose: expected true or false"},
        Mutation{"model/1/Linear/out_features=wide", "model/1/Linear/out_features"},
        Mutation{"callbacks=3", "callbacks: expected a list of callbacks"},
        Mutation{"loaders=[1]", "loaders: expected a mapping"},
        Mutation{"loaders={}",
                 "loaders: expected a mapping of names to loaders, got an empty mapping"},
        Mutation{"optimizer=[Adam]", "optimizer: expected an optimizer"},
        Mutation{"callbacks/0/AccuracyCallback/num_classes=2", "callbacks/0: "},
        Mutation{"callbacks/0/AccuracyCallback/input_key=scores", "callbacks/0: "},
        Mutation{"callbacks={early: {EarlyStoppingCallback: {metric: valid/los}}}",
                 "callbacks/early/EarlyStoppingCallback: no callback or runner computes"},
        Mutation{"loaders.valid.dataset.shape=[2, 5]",
                 "loaders/valid: the model does not fit its samples"},
        Mutation{"loaders.valid.dataset.classes=7", "loaders/valid: class"},
        Mutation{"scheduler={_target_: OneCycleLR, max_lr: 1, total_steps: 3}", "scheduler"},
        Mutation{"stages=[a]", "stages: expected a mapping"},
        Mutation{"hparams=3", "hparams: expected a mapping"},
        Mutation{"plugins=[nowhere.so]", "plugins: plugin nowhere.so"},
        // Names that do not exist.
        Mutation{"optimizer._target_=Adm", "did you mean 'Adam'"},
        Mutation{"criterion=CrossEntropy", "did you mean 'CrossEntropyLoss'?"},
        Mutation{"model/0=Flaten", "model/0: unknown layer 'Flaten'; did you mean 'Flatten'?"},
        Mutation{"model=Net", "unknown model 'Net'"},
        Mutation{"scheduler=CosineLR", "scheduler/_target_: unknown scheduler"},
        Mutation{"loaders.train.dataset=Nois", "loaders/train/dataset/_target_: unknown dataset"},
        Mutation{"loaders.train.sampler=Random", "loaders/train/sampler/_target_: unknown sampler"},
        Mutation{"loaders.train.collate=pat", "loaders/train/collate/_target_: unknown collate"},
        Mutation{"valid_loader=vald", "valid_loader"},
        Mutation{"valid_metric=acuracy", "accuracy01"},
        Mutation{"loaders.tst={dataset: {_target_: Noise, shape: [2, 4], classes: 3}}", "tst"},
        Mutation{"optimizer/layers={encoder.*: {lr: 1}}", "'encoder.*' matches no parameter"},
        // Values out of their range.
        Mutation{"num_epochs=0", "num_epochs"},
        Mutation{"check=true\nnum_epochs=-5", "num_epochs: expected 1 or more, got -5"},
        Mutation{"stages={a: {num_epochs: 2}, b: {num_epochs: 1}}\nnum_epochs=3",
                 "num_epochs: has no effect, because every stage sets its own num_epochs"},
        Mutation{"stages={a: {num_epochs: 2}}\nnum_epochs=-5", "num_epochs"},
        Mutation{"stages={a: {num_epochs: 2}, b: {num_epochs: -5}}", "num_epochs"},
        Mutation{"loaders.train.batch_size=9223372036854775807",
                 "loaders/train/batch_size: expected at most 2147483647"},
        Mutation{"loaders.train.global_batch_size=9223372036854775807",
                 "loaders/train/global_batch_size: expected at most 2147483647"},
        Mutation{"optimizer.lr=-1", "optimizer/lr: expected a number >= 0, got -1"},
        Mutation{"optimizer.beta1=1", "optimizer/beta1"},
        Mutation{"loaders.train.batch_size=0", "loaders/train/batch_size"},
        Mutation{"loaders.train.prefetch=-1", "loaders/train/prefetch"},
        Mutation{"loaders.train.threads=-1", "loaders/train/threads"},
        Mutation{"scheduler.step_size=0", "scheduler/step_size"},
        Mutation{"model/1/Linear/out_features=-8", "model/1/Linear/out_features"},
        Mutation{"model/3/Dropout/p=1.5", "model/3"},
        Mutation{"accumulation_steps=0", "accumulation_steps"},
        Mutation{"clip_grad_norm=-1", "clip_grad_norm"},
        Mutation{"loaders.train.dataset.samples=0", "loaders/train/dataset/samples"},
        Mutation{"workers=0", "workers"},
        // Missing parts.
        Mutation{"model=", "model is missing"}, Mutation{"criterion=", "criterion is missing"},
        Mutation{"optimizer=", "optimizer is missing"}, Mutation{"loaders=", "loaders is missing"},
        Mutation{"loaders.train.dataset=", "loaders/train"},
        Mutation{"model=[]", "model: expected at least one layer"},
        Mutation{"model=[{Linear: {}}]", "out_features is missing"},
        Mutation{"loaders.train.dataset={_target_: MNIST, root: nowhere}", "loaders/train/dataset"},
        Mutation{"loaders.train.dataset={_target_: TensorFile, path: no.pt}", "no.pt"},
        Mutation{"resume=nowhere.pth", "nowhere.pth"},
        // Parts that do not fit together.
        Mutation{"model/1/Linear/in_features=9", "model/1: does not fit an input of Float [1, 8]"},
        Mutation{"criterion=MSELoss", "criterion: does not fit the model's output"},
        Mutation{"model/4/Linear/out_features=2", "class 2 is among the targets"},
        Mutation{"workers=2", "workers"},
        Mutation{"engine={DeviceEngine: {}}\nddp=true", "engine: a DeviceEngine is one process"},
        Mutation{"optimizer={_target_: SGD, nesterov: true}", "optimizer"},
        Mutation{"scheduler={_target_: OneCycleLR, max_lr: 1}\noptimizer={_target_: Adagrad}",
                 "momentum"},
        Mutation{"runner={SupervisedRunner: {input_key: images}}", "its batches have no 'images'"},
        Mutation{"runner={SupervisedRunner: {target_key: labels}}", "its batches have no 'labels'"},
        Mutation{"runner={SupervisedRunner: {losses: [{name: a}, {name: b, criterion: mse}]}}",
                 "runner/losses/1/criterion: the run has no criterion 'mse'"},
        Mutation{"runner={_target_: SupervisedRunner, losses: [{target: labels}]}",
                 "runner/losses/0/target: the batches of loader 'train' have no 'labels'"},
        Mutation{"runner={_target_: SupervisedRunner, losses: [{name: a}, {name: b, output: x}]}",
                 "runner/losses/1/output: the batches of loader 'train' have no 'x'"},
        Mutation{"loaders.train={dataset: {_target_: Noise, shape: [2, 4], classes: 3}, shuffle: "
                 "true, sampler: SequentialSampler}",
                 "loaders/train"},
        Mutation{"stages={a: {model: [Flatten]}}",
                 "stages/a/model: all stages have this in common"},
        Mutation{"stages={'a/b': {}}", "stages/a/b: expected a name that a folder can have"},
        Mutation{"stages={a: {num_epoch: 1}}", "stages/a/num_epoch: unknown key"}));

// Metrics of the data that a model is trained on say nothing about new data.
TEST(Recipe, AnEvaluationOfTheTrainingDataIsRefused) {
  const std::string data = "{_target_: Noise, samples: 40, shape: [2, 4], classes: 3, seed: 1}";
  const auto error = [&](std::vector<std::string> changes) {
    changes.insert(changes.begin(), "loaders.valid.dataset=" + data);
    return error_of([&] { read_recipe(config_with(changes)); });
  };
  EXPECT_THAT(error({}), AllOf(HasSubstr("loaders/valid/dataset: has samples of loader 'train'"),
                               HasSubstr("allow_training_data: true")));
  EXPECT_EQ(error({"loaders.valid.allow_training_data=true"}), "");
  EXPECT_EQ(error({"loaders.valid.dataset.seed=2"}), "");
  EXPECT_THAT(error({"loaders.valid.dataset={_target_: Subset, first: 0, count: 8, dataset: " +
                     data + "}"}),
              HasSubstr("has samples of loader 'train'"));
  EXPECT_THAT(error({"loaders.train.sampler=SequentialSampler", "loaders.train.shuffle=false",
                     "loaders.valid.sampler={_target_: RandomSampler, seed: 1}"}),
              HasSubstr("has samples of loader 'train'"))
      << "another order of the same samples";
  EXPECT_THAT(error({"loaders.valid.allow_training_data=perhaps"}), HasSubstr("true or false"));
}

// A transform changes samples, but not which ones there are.
TEST(Recipe, TransformsDoNotMakeOtherData) {
  const TemporaryDirectory folder;
  checkpoint::save(folder / "d.pt", StateDict{{"features", torch::rand({8, 2, 4})},
                                              {"targets", torch::arange(8) % 3}});
  const std::string file = "{_target_: TensorFile, path: " + (folder / "d.pt").string();
  EXPECT_THAT(error_of([&] {
                read_recipe(config_with({"loaders.train.dataset=" + file +
                                             ", transform: [{Normalize: {mean: 0, "
                                             "std: 2}}]}",
                                         "loaders.valid.dataset=" + file + "}"}));
              }),
              HasSubstr("has samples of loader 'train'"));
}

// Labels are numbers: both loaders must mean the same by them.
TEST(Recipe, OtherClassesAreRefused) {
  struct Options {
    std::vector<std::string> names;
  };
  class Flowers : public data::Dataset {
   public:
    explicit Flowers(std::vector<std::string> names) : names_(std::move(names)) {}
    std::int64_t size() const override { return 8; }
    Batch sample(std::int64_t index) const override {
      return {{"features", torch::ones({2, 4})}, {"targets", torch::tensor(index % 2)}};
    }
    std::vector<std::string> class_names() const override { return names_; }

   private:
    std::vector<std::string> names_;
  };
  targets().datasets.add<Options>(
      "Flowers", "For tests.", {{"names", &Options::names, "of classes"}},
      [](const Options& o) { return std::make_shared<Flowers>(o.names); });
  const auto error = [](const std::string& names) {
    return error_of([&] {
      read_recipe(
          config_with({"loaders.train.dataset={_target_: Flowers, names: [lily, rose, tulip]}",
                       "loaders.valid.dataset={_target_: Flowers, names: " + names + "}"}));
    });
  };
  EXPECT_EQ(error("[lily, rose]"), "") << "the numbers of both mean the same";
  EXPECT_THAT(error("[lily, tulip]"),
              HasSubstr("loaders/valid/dataset: class 1 is 'tulip', but 'rose' in loader 'train'"));
  EXPECT_THAT(error("[lily, rose, tulip, violet]"),
              HasSubstr("class 3 is 'violet', but there is none in loader 'train'"));
  // Train loaders of one model, and data sets that follow each other.
  const auto both = [](const std::string& names) {
    return error_of([&] {
      read_recipe(
          config_with({"loaders.train.dataset={_target_: Flowers, names: [lily, rose]}",
                       "loaders.train_b={dataset: {_target_: Flowers, names: " + names + "}}"}));
    });
  };
  EXPECT_THAT(both("[rose, tulip]"), HasSubstr("loaders/train_b/dataset: class 0 is 'rose', but "
                                               "'lily' in loaders/train/dataset"));
  EXPECT_EQ(both("[lily, rose, tulip]"), "");
  EXPECT_THAT(error_of([] {
                read_recipe(config_with(
                    {"loaders.train.dataset={_target_: Concat, datasets: [{_target_: Flowers, "
                     "names: [lily, rose]}, {_target_: Flowers, names: [rose, lily]}]}"}));
              }),
              HasSubstr("datasets/1: class 0 is 'rose', but 'lily' in"));
  // The model has the classes of the training data, wherever these are written.
  const Recipe recipe = read_recipe(config::parse_yaml(
      "model: [Flatten, Linear]\ncriterion: CrossEntropyLoss\noptimizer: {_target_: SGD, lr: 0.1}\n"
      "loaders:\n  valid: {dataset: {_target_: Flowers, names: [lily, rose]}}\n"
      "  train: {dataset: {_target_: Flowers, names: [lily, rose, tulip]}}\n",
      "a.yml"));
  EXPECT_EQ(recipe.stages.at(0).options.model(torch::ones({1, 2, 4})).size(1), 3);
}

// As `lockstep run` does: it ends before the training.
TEST(Recipe, AValueThatIsNotFiniteEndsIt) {
  const TemporaryDirectory folder;
  torch::Tensor features = torch::rand({8, 2, 4});
  features[3][1][2] = std::numeric_limits<float>::quiet_NaN();
  checkpoint::save(folder / "d.pt",
                   StateDict{{"features", features}, {"targets", torch::arange(8) % 3}});
  const std::string dataset =
      "loaders.train.dataset={_target_: TensorFile, path: " + (folder / "d.pt").string();
  std::string message;
  try {
    read_recipe(config_with({dataset + "}"}));
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, AllOf(HasSubstr("d.pt"), HasSubstr("'features': the value at [3, 1, 2]")));
}

TEST(Recipe, ALoaderHasItsCollate) {
  config::Node document = config_with({"loaders.train.collate={pad: {keys: [features]}}"});
  spell_out(document);
  const Recipe recipe = read_recipe(document);
  const data::Loaders& loaders = recipe.stages.at(0).options.loaders;
  EXPECT_EQ(loaders.at("train").options().collate.name(), data::pad({.keys = {"features"}}).name());
  EXPECT_FALSE(loaders.at("valid").options().collate);
}

TEST(Recipe, ALoaderHasItsBatchTransform) {
  // A metric of classes would need the key "labels", which only mixed batches have.
  config::Node document =
      config_with({"loaders.train.batch_transform={Mixup: {classes: 3}}", "callbacks=[]"});
  spell_out(document);
  const Recipe recipe = read_recipe(document);
  const data::Loaders& loaders = recipe.stages.at(0).options.loaders;
  EXPECT_TRUE(loaders.at("train").options().batch_transform);
  EXPECT_FALSE(loaders.at("valid").options().batch_transform);
}

TEST(Recipe, BatchTransformsOfAListFollowEachOther) {
  config::Node document = config_with(
      {"loaders.train.batch_transform=[{_target_: LabelSmoothing, classes: 3}, {Mixup: {alpha: "
       "0.4}}]",
       "callbacks=[]"});
  spell_out(document);
  const Recipe recipe = read_recipe(document);
  const data::BatchTransform& made =
      recipe.stages.at(0).options.loaders.at("train").options().batch_transform;
  EXPECT_EQ(made.name(), data::BatchTransform(data::LabelSmoothing({.classes = 3}))
                             .then(data::Mixup({.alpha = 0.4}))
                             .name());
}

TEST(Evaluation, HasTheLoaderAndTheMetrics) {
  const Evaluation evaluation = read_evaluation(
      config_with({"callbacks=[{AccuracyCallback: {num_classes: 3}}, EarlyStoppingCallback]"}));
  EXPECT_EQ(evaluation.loader_name, "valid");
  EXPECT_EQ(evaluation.loader.samples(), 16);
  EXPECT_TRUE(evaluation.criterion);
  ASSERT_EQ(evaluation.callbacks.size(), 1u) << "without the one of training";
  EXPECT_EQ((*evaluation.callbacks.begin())->name(), "AccuracyCallback");
  EXPECT_EQ(evaluation.engine->workers(), 1);
  EXPECT_EQ(read_evaluation(config_with(), {.loader = "train"}).loader.samples(), 40);
}

TEST(Evaluation, NeedsOnlyTheChosenLoader) {
  const auto other = config_with({"loaders.train.dataset._target_=Unknown"});
  EXPECT_EQ(read_evaluation(other).loader_name, "valid");
  EXPECT_THAT(error_of([&] { read_evaluation(other, {.loader = "train"}); }), HasSubstr("Unknown"));
}

TEST(Evaluation, WithoutValidItIsTheOnlyLoader) {
  config::Node document = config_with();
  document.find("loaders")->erase("valid");
  document.erase("valid_loader");
  EXPECT_EQ(read_evaluation(document).loader_name, "train");
  const config::Node copy = *document.find("loaders")->find("train");
  document.find("loaders")->set("test", copy);
  EXPECT_THAT(error_of([&] { read_evaluation(document); }),
              AllOf(HasSubstr("train"), HasSubstr("test")));
  EXPECT_THAT(error_of([&] { read_evaluation(document, {.loader = "tets"}); }),
              HasSubstr("did you mean 'test'"));
}

TEST(Evaluation, TheValidLoaderOfTheConfigComesFirst) {
  config::Node document = config_with();
  const config::Node copy = *document.find("loaders")->find("train");
  document.find("loaders")->set("test", copy);
  EXPECT_EQ(read_evaluation(document).loader_name, "valid");
  config::apply_override(document, "valid_loader=test");
  EXPECT_EQ(read_evaluation(document).loader_name, "test") << "and not the one called valid";
  document.find("loaders")->erase("valid");
  EXPECT_EQ(read_evaluation(document).loader_name, "test");
  EXPECT_EQ(read_evaluation(document, {.loader = "train"}).loader_name, "train");
  document.erase("valid_loader");
  EXPECT_THAT(error_of([&] { read_evaluation(document); }),
              HasSubstr("no valid_loader and no loader 'valid'; choose one of train, test"));
}

// The short form, as a user writes it.
TEST(Recipe, AWrongNameInALossIsFoundThere) {
  const auto document =
      config_with({"runner={SupervisedRunner: {losses: [{name: a}, {name: b, output: logit}]}}"});
  EXPECT_THAT(
      error_of([&] { read_recipe(document); }),
      HasSubstr("runner/SupervisedRunner/losses/1/output: the batches of loader 'train' have "
                "no 'logit'; did you mean 'logits'?"));
}

TEST(Evaluation, OfAStage) {
  const auto document =
      config_with({"stages={one: {num_epochs: 1}, two: {criterion: MSELoss, "
                   "callbacks: [{AccuracyCallback: {num_classes: 3}}, "
                   "{AUCCallback: {num_classes: 3}}]}}"});
  EXPECT_EQ(read_evaluation(document, {.stage = "one"}).callbacks.size(), 1u);
  EXPECT_EQ(read_evaluation(document).callbacks.size(), 2u) << "the last one";
  EXPECT_THAT(error_of([&] { read_evaluation(document, {.stage = "three"}); }), HasSubstr("three"));
}

// An autoencoder whose parts have a phase each.
struct TwoParts : Runner {
  void handle_batch(State& s) override {
    const torch::Tensor x = s.batch["features"].flatten(1);
    const torch::Tensor code = s.models["encoder"](x);
    s.set_loss(s.criterions["mse"](s.models["decoder"](code), x));
  }
};

const char* const kNetworks = R"(
runner: TwoParts
models:
  encoder:
    - Linear: {in_features: 8, out_features: 3}
    - Tanh
  decoder:
    - Linear: {in_features: 3, out_features: 8}
criterions: {mse: MSELoss}
optimizers:
  encoder: {_target_: Adam, lr: 0.01}
  decoder: {_target_: SGD, lr: 0.1}
schedulers:
  encoder: {_target_: ExponentialLR, gamma: 0.5}
phases:
  - encoder
  - {name: decoder, every: 2}
loaders:
  train:
    dataset: {_target_: Noise, samples: 40, shape: [2, 4], classes: 3, seed: 1}
    batch_size: 8
    shuffle: true
num_epochs: 2
console: false
)";

config::Node networks_with(const std::vector<std::string>& overrides = {}) {
  static const bool added = [] {
    targets().runners.add("TwoParts", "For tests.", [] { return std::make_shared<TwoParts>(); });
    return true;
  }();
  EXPECT_TRUE(added);
  config::Node document = config::parse_yaml(kNetworks, "a.yml");
  for (const auto& argument : overrides) config::apply_override(document, argument);
  return document;
}

TEST(Recipe, SeveralNetworksTrainAsInCpp) {
  namespace nn = torch::nn;
  torch::manual_seed(42);
  const nn::Sequential encoder(nn::Linear(8, 3), nn::Tanh());
  const nn::Sequential decoder(nn::Linear(3, 8));
  const auto expected = TwoParts().train(
      {.models = {{"encoder", encoder}, {"decoder", decoder}},
       .criterions = {{"mse", nn::MSELoss()}},
       .optimizers = {{"encoder", optim::Adam{.lr = 0.01}}, {"decoder", optim::SGD{.lr = 0.1}}},
       .schedulers = {{"encoder", optim::ExponentialLR{.gamma = 0.5}}},
       .phases = {"encoder", Phase{.name = "decoder", .every = 2}},
       .loaders = {{"train",
                    {noise({.samples = 40, .shape = {2, 4}, .classes = 3, .seed = 1}),
                     {.batch_size = 8, .shuffle = true}}}},
       .num_epochs = 2,
       .console = false});
  config::Node document = networks_with();
  spell_out(document);
  const auto result = run_recipe(read_recipe(document));
  EXPECT_EQ(result.weights_hash, expected.weights_hash);
  EXPECT_EQ(result.history, expected.history);
}

TEST(Recipe, ANetworkWithoutAnOptimizerIsNotTrained) {
  config::Node document = networks_with({"phases=", "schedulers="});
  document.find("optimizers")->erase("encoder");
  const Recipe recipe = read_recipe(document);
  const Model& encoder = recipe.stages[0].options.models["encoder"];
  const torch::Tensor before = encoder.parameters()[0].second.clone();
  run_recipe(recipe);
  EXPECT_TRUE(encoder.parameters()[0].second.equal(before));
}

TEST(Recipe, MistakesInNamesOfPartsHaveTheirPlace) {
  const auto error = [](const std::vector<std::string>& overrides) {
    return error_of([&] { read_recipe(networks_with(overrides)); });
  };
  EXPECT_THAT(error({"model=[Flatten]"}), HasSubstr("models: expected model or models, got both"));
  EXPECT_THAT(error({"models.encoder=[{Linaer: {}}]"}),
              AllOf(HasSubstr("models/encoder/0"), HasSubstr("did you mean 'Linear'")));
  EXPECT_THAT(error({"optimizers.decodr={_target_: Adam}"}),
              AllOf(HasSubstr("optimizers: 'decodr' trains"), HasSubstr("did you mean 'decoder'")));
  EXPECT_THAT(error({"optimizers.encoder.lr=-1"}), HasSubstr("optimizers/encoder"));
  EXPECT_THAT(error({"schedulers.encoder.gamma=x"}), HasSubstr("schedulers/encoder/gamma"));
  EXPECT_THAT(error({"phases=[encoder]"}), HasSubstr("phases: none steps the optimizer 'decoder'"));
  EXPECT_THAT(error({"phases=[encoder, {name: decoder, evry: 2}]"}),
              AllOf(HasSubstr("phases/1/evry"), HasSubstr("every")));
  EXPECT_THAT(error({"criterions=[MSELoss]"}),
              HasSubstr("criterions: expected a mapping of names to criterions"));
  EXPECT_THAT(error({"optimizers="}), HasSubstr("optimizer is missing"));
}

TEST(Evaluation, OfSeveralNetworks) {
  const Evaluation evaluation = read_evaluation(networks_with());
  EXPECT_EQ(evaluation.models.names(), (std::vector<std::string>{"encoder", "decoder"}));
  EXPECT_EQ(evaluation.model.parameters().front().first, "encoder.0.weight");
  const Metrics metrics = evaluation.runner->evaluate_loader({.loader = evaluation.loader,
                                                              .models = evaluation.models,
                                                              .criterions = evaluation.criterions,
                                                              .phases = evaluation.phases});
  EXPECT_GT(metrics.at("loss/decoder"), 0);
}

}  // namespace
}  // namespace lockstep::recipe
