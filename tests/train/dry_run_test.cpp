#include "lockstep/train/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/criterion.h"
#include "lockstep/process/failure.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Plan tried_plan(const TrainOptions& options,
                std::optional<SupervisedKeys> keys = SupervisedKeys()) {
  return resolve(options, resolve_engine(options), {.metrics = no_metrics(), .keys = keys});
}

struct FoundMistake {
  std::string part;
  std::string what;
};

// The error that a dry run finds; empty if it finds none.
FoundMistake found(const Plan& plan, const DryRunOptions& options = {}) {
  try {
    dry_run(plan, options);
  } catch (const PlanError& error) {
    return {.part = error.part(), .what = error.what()};
  }
  return {};
}

data::DatasetPtr dataset(const torch::Tensor& features, const torch::Tensor& targets) {
  return std::make_shared<data::TensorDataset>(features, targets);
}

TEST(DryRun, ARunThatFitsIsNotChangedByIt) {
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3}),
                       CriterionCallback({.criterion = torch::nn::CrossEntropyLoss()})};
  const Plan plan = tried_plan(options);
  const std::string before = weights_hash(plan.model.weights());
  torch::manual_seed(3);
  const torch::Tensor drawn = torch::rand({4});
  torch::manual_seed(3);
  EXPECT_EQ(found(plan, {.targets = 100, .optimizer = true, .files = true}).what, "");
  EXPECT_TRUE(torch::rand({4}).equal(drawn)) << "the random state";
  EXPECT_EQ(weights_hash(plan.model.weights()), before) << "statistics of batch norm";
  EXPECT_TRUE(plan.model.is_training());
  plan.model.train(false);
  dry_run(plan);
  EXPECT_FALSE(plan.model.is_training());
}

// A model that counts its calls in a buffer, in evaluation mode, too.
struct CounterImpl : torch::nn::Module {
  CounterImpl() : calls(register_buffer("calls", torch::zeros({1}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    calls += 1;
    return x.narrow(1, 0, 3);
  }
  torch::Tensor calls;
};

TEST(DryRun, BuffersThatAModelChangesAreRestored) {
  TrainOptions options = toy::options();
  const auto counter = std::make_shared<CounterImpl>();
  options.model = counter;
  EXPECT_EQ(found(tried_plan(options)).what, "");
  EXPECT_EQ(counter->calls.item<double>(), 0);
}

TEST(DryRun, ALoaderThatDoesNotFitTheModelIsNamed) {
  TrainOptions options = toy::options();
  options.loaders.set("valid", {dataset(torch::zeros({6, 5}), torch::zeros({6}, torch::kInt64))});
  const FoundMistake error = found(tried_plan(options));
  EXPECT_EQ(error.part, "loaders/valid");
  EXPECT_THAT(error.what, AllOf(HasSubstr("loader 'valid': the model does not fit its samples"),
                                HasSubstr("[2, 5]")));
}

TEST(DryRun, AMissingKeyGetsTheNearestOne) {
  const FoundMistake error =
      found(tried_plan(toy::options(), SupervisedKeys{.input_key = "feature"}));
  EXPECT_EQ(error.part, "loaders/train");
  EXPECT_THAT(error.what, AllOf(HasSubstr("no 'feature'"), HasSubstr("'features'")));
}

TEST(DryRun, WhatADataSetThrowsNamesItsLoader) {
  struct Broken : data::Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t) const override { throw DataError("cube 0 is damaged"); }
  };
  TrainOptions options = toy::options();
  options.loaders.set("valid", {std::make_shared<Broken>()});
  // Also for a runner of which nothing is known.
  EXPECT_EQ(found(tried_plan(options, std::nullopt)).what,
            "loader 'valid': sample 0: cube 0 is damaged");
}

// Another attempt may have enough, so it must not be taken for a wrong option.
TEST(DryRun, ALackOfMemoryStaysOne) {
  struct Large : data::Dataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t) const override { throw std::bad_alloc(); }
  };
  TrainOptions options = toy::options();
  options.loaders.set("valid", {std::make_shared<Large>()});
  try {
    dry_run(tried_plan(options));
    FAIL() << "expected an error";
  } catch (const std::exception& error) {
    EXPECT_EQ(process::failure_kind(error), process::FailureKind::kOutOfMemory) << error.what();
  }
}

TEST(DryRun, TargetsMustFitTheCriterion) {
  TrainOptions options = toy::options();
  options.criterion = torch::nn::MSELoss();
  EXPECT_EQ(found(tried_plan(options)).part, "criterion");
  options.criterion = torch::nn::CrossEntropyLoss();
  options.loaders.set("valid", {dataset(torch::zeros({6, 4}), torch::full({6}, 3))});
  const FoundMistake error = found(tried_plan(options));
  EXPECT_EQ(error.part, "loaders/valid");
  EXPECT_THAT(error.what, HasSubstr("class 3 is among the targets"));
}

TEST(DryRun, MoreTargetsThanSamplesCanBeCompared) {
  TrainOptions options = toy::options();
  torch::Tensor targets = torch::zeros({6}, torch::kInt64);
  targets[5] = 7;
  options.loaders.set("valid", {dataset(torch::zeros({6, 4}), targets)});
  EXPECT_EQ(found(tried_plan(options)).what, "");
  EXPECT_THAT(found(tried_plan(options), {.targets = 10}).what, HasSubstr("class 7"));
}

TEST(DryRun, AMetricThatDoesNotFitIsNamedWithItsPlaceAmongTheCallbacks) {
  TrainOptions options = toy::options();
  struct Bystander : Callback {
    CallbackTraits traits() const override { return {.changes_batch = false}; }
  };
  options.callbacks = {Bystander(), AccuracyCallback({.input_key = "scores"})};
  const FoundMistake error = found(tried_plan(options));
  EXPECT_EQ(error.part, "callbacks/1");
  EXPECT_THAT(error.what, AllOf(HasSubstr("AccuracyCallback"), HasSubstr("scores")));
  // Only in the loaders in which it is used.
  options.callbacks = {
      ControlFlowCallback(AccuracyCallback({.input_key = "scores"}), {.ignore_loaders = {"train"}}),
      Bystander()};
  options.loaders = {{"train", {toy::points(8)}}};
  options.valid_loader.reset();
  EXPECT_EQ(found(tried_plan(options)).what, "");
}

// A callback may put the scores into the batch, so nothing is known about what the metric gets.
TEST(DryRun, MetricsAreNotTriedIfACallbackMayChangeTheBatch) {
  TrainOptions options = toy::options();
  options.callbacks = {toy::Hooks(), AccuracyCallback({.input_key = "scores"})};
  EXPECT_EQ(found(tried_plan(options)).what, "");
}

struct SumImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& y) {
    return {x.narrow(1, 0, 3), x + y};
  }
};

TEST(DryRun, AllInputsOutputsAndLossesAreTried) {
  TrainOptions options = toy::options();
  options.model = std::make_shared<SumImpl>();
  options.criterion = {};
  options.criterions = {{"ce", torch::nn::CrossEntropyLoss()}, {"l1", torch::nn::L1Loss()}};
  const auto with_more = [](torch::Tensor more) {
    return data::tensor_dataset({{"features", torch::zeros({6, 4})},
                                 {"more", std::move(more)},
                                 {"targets", torch::zeros({6}, torch::kInt64)}});
  };
  options.loaders = {{"train", {with_more(torch::zeros({6, 4}))}}};
  options.valid_loader.reset();
  SupervisedKeys keys{.input_keys = {"features", "more"},
                      .output_keys = {"scores", "sum"},
                      .losses = {{.criterion = "ce", .output = "scores"},
                                 {.criterion = "l1", .output = "sum", .target = "features"}}};
  EXPECT_EQ(found(tried_plan(options, keys), {.targets = 10}).what, "");
  keys.losses[1].target = "targets";
  EXPECT_EQ(found(tried_plan(options, keys)).part, "criterions/l1");
  keys.losses[1] = {.criterion = "l2", .output = "sum", .target = "features"};
  EXPECT_THAT(found(tried_plan(options, keys)).what,
              HasSubstr("losses[1]: criterion: the run has no criterion 'l2'"));
  EXPECT_EQ(found(tried_plan(options, keys)).part, "runner/losses/1");
  keys.losses[1] = {.criterion = "l1", .output = "some", .target = "features"};
  EXPECT_THAT(found(tried_plan(options, keys)).what,
              HasSubstr("output: the batches of loader 'train' have no 'some'"));
  EXPECT_EQ(found(tried_plan(options, keys)).part, "runner/losses/1");
  keys.losses[1] = {.criterion = "l1", .output = "sum", .target = "feature"};
  EXPECT_THAT(found(tried_plan(options, keys)).what, HasSubstr("target: the batches of loader"));
  EXPECT_EQ(found(tried_plan(options, keys)).part, "runner/losses/1");
  keys.losses.pop_back();
  options.loaders = {{"train", {with_more(torch::zeros({6, 5}))}}};
  EXPECT_THAT(found(tried_plan(options, keys)).what,
              HasSubstr("the model does not fit its samples, Float [2, 4] and Float [2, 5]"));
  keys.input_keys = {"features", "mor"};
  EXPECT_THAT(found(tried_plan(options, keys)).what, HasSubstr("did you mean 'more'"));
}

TEST(DryRun, AFunctionAsCriterionIsNotCalled) {
  TrainOptions options = toy::options();
  int calls = 0;
  options.criterion = [&calls](const torch::Tensor& x, const torch::Tensor&) {
    ++calls;
    return x.sum();
  };
  EXPECT_EQ(found(tried_plan(options)).what, "");
  EXPECT_EQ(calls, 0);
}

TEST(DryRun, OptimizerAndFilesAreTriedOnRequest) {
  TrainOptions options = toy::options();
  options.optimizer = {optim::Adam{}, {{.names = "encoder.*", .lr = 1}}};
  EXPECT_EQ(found(tried_plan(options)).what, "");
  EXPECT_EQ(found(tried_plan(options), {.optimizer = true}).part, "optimizer");
  options = toy::options();
  options.scheduler = optim::OneCycleLR{.max_lr = 1, .total_steps = 3};
  EXPECT_EQ(found(tried_plan(options), {.optimizer = true}).part, "scheduler");
  options = toy::options();
  options.model = {};
  options.models = {{"net", toy::model()}};
  options.optimizer = {};
  options.optimizers.set("net", {optim::Adam{}, {{.names = "encoder.*", .lr = 1}}});
  EXPECT_EQ(found(tried_plan(options), {.optimizer = true}).part, "optimizers/net");
  options.optimizers.set("net", {optim::Adam{}, {{.names = "net.0.*", .lr = 1}}});
  EXPECT_EQ(found(tried_plan(options), {.optimizer = true}).what, "");
  options = toy::options();
  const TemporaryDirectory folder;
  options.weights = folder / "none.pth";
  EXPECT_EQ(found(tried_plan(options), {.files = true}).part, "weights");
  options.weights = {};
  options.resume = "nowhere.pth";
  EXPECT_EQ(found(tried_plan(options), {.files = true}).part, "resume");
}

// In a run: before anything is written, unless it is switched off.
TEST(DryRun, TrainFindsAMistakeInValidationBeforeTheFirstBatch) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.loaders.set("valid", {dataset(torch::zeros({6, 5}), torch::zeros({6}, torch::kInt64))});
  struct Counter : Callback {
    explicit Counter(int& batches) : batches_(batches) {}
    CallbackTraits traits() const override { return {.changes_batch = false}; }
    void on_batch_start(State&) override { ++batches_; }
    int& batches_;
  };
  int batches = 0;
  options.callbacks = {std::make_shared<Counter>(batches)};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("loader 'valid': the model does not fit its samples"));
  EXPECT_EQ(batches, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  options.dry_run = false;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("epoch 1, batch 1"));
  EXPECT_GT(batches, 0);
}

// A runner that overrides handle_batch may do anything with a batch.
TEST(DryRun, AHandleBatchOfTheUsersIsNotTried) {
  struct Narrow : SupervisedRunner {
    void handle_batch(State& state) override {
      state.batch.set("features", state.batch["features"].narrow(1, 0, 4));
      SupervisedRunner::handle_batch(state);
    }
  };
  TrainOptions options = toy::options();
  const auto wide = dataset(torch::randn({12, 6}), torch::zeros({12}, torch::kInt64));
  options.loaders = {{"train", {wide, {.batch_size = 4}}}};
  options.valid_loader.reset();
  EXPECT_EQ(toy::error_of([&] { Narrow().train(options); }), "");
}

TEST(FirstSamples, AreTheFirstOnesOfTheDataSet) {
  const data::Loader loader = {dataset(torch::arange(6).reshape({3, 2}), torch::arange(3)), {}};
  EXPECT_EQ(first_samples(loader, 2)["features"].sizes(), torch::IntArrayRef({2, 2}));
  EXPECT_EQ(first_samples(loader, 100)["targets"].size(0), 3);
  EXPECT_THROW(first_samples({toy::points(0)}, 1), DataError);
  const data::Loader separate = {loader.dataset(), {.collate = data::lists({"features"})}};
  EXPECT_EQ(first_samples(separate, 2).list("features").size(), 2U);
}

}  // namespace
}  // namespace lockstep
