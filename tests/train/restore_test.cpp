#include "lockstep/train/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/checkpoint/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Every epoch is the same: no dropout, and the samples are not shuffled. So the first epoch of a
// run that begins with all parts of another one is that one's next epoch.
TrainOptions same_epochs(std::int64_t num_epochs) {
  TrainOptions options = toy::options();
  manual_seed(3);
  options.model =
      torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
  options.loaders = {{"train", {toy::points(48), {.batch_size = 8}}}};
  options.valid_loader.reset();
  options.num_epochs = num_epochs;
  return options;
}

class Restore : public testing::Test {
 protected:
  Restore() { options_.logdir = folder_ / "run"; }

  // Trains three epochs with options_.
  std::filesystem::path trained() {
    toy::train(options_);
    return folder_ / "run/checkpoints/last.pth";
  }

  std::string hash_after_a_fourth_epoch() {
    TrainOptions longer = options_;
    longer.num_epochs = 4;
    longer.resume = "last";
    longer.logdir = folder_ / "run";
    return toy::train(longer).weights_hash;
  }

  // A new run of one epoch from the weights of `file`.
  TrainOptions next(const std::filesystem::path& file) {
    TrainOptions options = options_;
    options.num_epochs = 1;
    options.logdir.reset();
    options.weights = file;
    return options;
  }

  TemporaryDirectory folder_;
  TrainOptions options_ = same_epochs(3);
};

TEST_F(Restore, ANewRunGoesOnWithTheOptimizerOfAnother) {
  const auto file = trained();
  TrainOptions options = next(file);
  const std::string without = toy::train(options).weights_hash;
  options.restore.optimizer = file;
  const std::string with = toy::train(options).weights_hash;
  options.ddp = true;
  options.workers = 2;
  options.shards = 2;
  options.loaders = {{"train", {toy::points(48), {.batch_size = 4}}}};
  const std::string on_two = toy::train(options).weights_hash;
  options.workers = 1;
  EXPECT_EQ(on_two, toy::train(options).weights_hash);
  EXPECT_EQ(with, hash_after_a_fourth_epoch());
  EXPECT_NE(with, without);
}

TEST_F(Restore, TheLearningRateIsThatOfTheNewRun) {
  const auto file = trained();
  TrainOptions options = next(file);
  options.restore.optimizer = file;
  options.optimizer = optim::Adam{.lr = 0.5};
  double lr = 0;
  const auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_start = [&](State& state) { lr = state.optimizers.begin()->second->lr(); };
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_EQ(lr, 0.5);
}

TEST_F(Restore, EachGroupOfATorchOptimizerHasTheRatesOfTheNewRun) {
  const auto with_groups = [](double lr, double momentum) {
    TrainOptions options = same_epochs(1);
    const auto parameters = options.model.parameters();
    const auto settings = [](double group_lr, double group_momentum) {
      return torch::optim::SGDOptions(group_lr).momentum(group_momentum);
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{parameters[0].second, parameters[1].second});
    groups.emplace_back(
        std::vector{parameters[2].second, parameters[3].second},
        std::make_unique<torch::optim::SGDOptions>(settings(10 * lr, momentum / 2)));
    const auto optimizer = std::make_shared<torch::optim::SGD>(groups, settings(lr, momentum));
    options.optimizer = optimizer;
    return std::pair(options, optimizer);
  };
  auto first = with_groups(0.01, 0.9).first;
  first.logdir = folder_ / "run";
  toy::train(first);
  auto [options, optimizer] = with_groups(0.02, 0.8);
  options.weights = folder_ / "run/checkpoints/last.pth";
  options.restore.optimizer = folder_ / "run/checkpoints/last.pth";
  toy::train(options);
  std::vector<double> lrs, momenta;
  for (const auto& group : optimizer->param_groups()) {
    const auto& found = static_cast<const torch::optim::SGDOptions&>(group.options());
    lrs.push_back(found.lr());
    momenta.push_back(found.momentum());
  }
  EXPECT_EQ(lrs, (std::vector{0.02, 0.2}));
  EXPECT_EQ(momenta, (std::vector{0.8, 0.4}));
}

TEST_F(Restore, TheScheduleGoesOnWhereItWas) {
  options_.scheduler = optim::StepLR{.step_size = 2, .gamma = 0.1};
  const auto file = trained();
  TrainOptions options = next(file);
  options.restore = {.optimizer = file, .scheduler = file};
  const std::string hash = toy::train(options).weights_hash;
  options.restore = {.optimizer = file};
  EXPECT_NE(hash, toy::train(options).weights_hash);
  EXPECT_EQ(hash, hash_after_a_fourth_epoch());
}

// A loss with a weight that is trained.
struct ScaledLossImpl : torch::nn::Module {
  ScaledLossImpl() : scale(register_buffer("scale", torch::ones({}))) {}
  torch::Tensor forward(const torch::Tensor& outputs, const torch::Tensor& targets) {
    return torch::cross_entropy_loss(outputs, targets) * scale;
  }
  torch::Tensor scale;
};
TORCH_MODULE(ScaledLoss);

TEST_F(Restore, TheLossHasTheValuesOfTheFile) {
  ScaledLoss loss;
  loss->scale.fill_(2);
  options_.criterion = loss;
  const auto file = trained();
  TrainOptions options = next(file);
  ScaledLoss fresh;
  options.criterion = fresh;
  options.restore.criterion = file;
  toy::train(options);
  EXPECT_EQ(fresh->scale.item<float>(), 2);
}

TEST_F(Restore, WhatDoesNotFitIsNamed) {
  const auto file = trained();
  TrainOptions options = next(file);
  options.restore.optimizer = folder_ / "none.pth";
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("none.pth"));
  options.restore = {.scheduler = file};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("has no scheduler_state_dict"));
  options.restore = {.optimizer = file};
  options.optimizer = optim::SGD{.lr = 0.1};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("restore: "), HasSubstr("Adam")));
  const auto plain = folder_ / "weights.pth";
  checkpoint::save(plain, {{"model_state_dict", StateDict()}});
  options.restore = {.optimizer = plain};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("weights.pth"), HasSubstr("it has: model_state_dict")));
}

TEST_F(Restore, AScheduleNeedsAScheduler) {
  options_.scheduler = optim::StepLR{.step_size = 2};
  const auto file = trained();
  TrainOptions options = next(file);
  options.scheduler = {};
  options.restore.scheduler = file;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("this run has none"));
}

TEST_F(Restore, AResumedRunDoesNotReadTheFiles) {
  trained();
  options_.num_epochs = 4;
  options_.resume = "last";
  options_.restore.optimizer = folder_ / "none.pth";
  options_.dry_run = false;
  EXPECT_EQ(toy::train(options_).history.size(), 4u);
}

}  // namespace
}  // namespace lockstep
