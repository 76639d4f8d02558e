#include "lockstep/train/side_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runner/runner.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A runner whose handle_batch computes the usual loss and then calls `also`.
struct Also : Runner {
  using Function = std::function<torch::Tensor(State&, const torch::Tensor& loss)>;
  explicit Also(Function also) : also(std::move(also)) {}
  void handle_batch(State& s) override {
    const auto loss = s.criterion(s.model(s.batch["features"]), s.batch["targets"]);
    s.set_loss(also(s, loss));
  }
  Function also;
};

std::string refused_because(const Also::Function& also) {
  Also runner(also);
  return toy::error_of([&] { runner.train(toy::options()); });
}

TEST(SideTraining, BackwardInHandleBatchIsRefused) {
  EXPECT_THAT(refused_because([](State&, const torch::Tensor& loss) {
                loss.backward({}, /*retain_graph=*/true);
                return loss;
              }),
              AllOf(HasSubstr("handle_batch called backward()"), HasSubstr(".phases"),
                    HasSubstr("torch::autograd::grad")));
  EXPECT_THAT(refused_because([](State& s, const torch::Tensor& loss) {
                s.model.parameters()[5].second.sum().backward();
                return loss;
              }),
              HasSubstr("the gradient of '4.bias' of shape [3]"));
}

TEST(SideTraining, BackwardOfAnotherNetworkIsRefused) {
  auto other = torch::nn::Linear(4, 1);
  EXPECT_THAT(refused_because([&](State& s, const torch::Tensor& loss) {
                other->forward(s.batch["features"]).sum().backward();
                return loss;
              }),
              AllOf(HasSubstr("called backward()"), HasSubstr("no parameter of the run")));
}

TEST(SideTraining, AChangeOfAParameterIsRefused) {
  EXPECT_THAT(refused_because([](State& s, const torch::Tensor& loss) {
                const torch::NoGradGuard no_grad;
                torch::Tensor(s.model.parameters()[2].second).clamp_(-0.01, 0.01);
                return loss;
              }),
              AllOf(HasSubstr("changed the parameter '1.weight' of shape [16]"),
                    HasSubstr("change_model")));
}

// The loop's backward() gives the network gradients, and a callback could step its optimizer.
TEST(SideTraining, ANetworkOfTheRunnersOwnIsNoticedInTheSecondBatch) {
  auto other = torch::nn::Linear(4, 5);
  EXPECT_THAT(refused_because([&](State& s, const torch::Tensor& loss) {
                return loss + other->forward(s.batch["features"]).sum();
              }),
              AllOf(HasSubstr("batch 2"), HasSubstr("shape [5"), HasSubstr(".models"),
                    HasSubstr("requires_grad_(false)")));
}

TEST(SideTraining, ATermOfTheLossIsNamed) {
  auto scale = torch::ones({7}).requires_grad_();
  EXPECT_THAT(refused_because([&](State& s, const torch::Tensor& loss) {
                s.batch.set("penalty", (scale * scale).sum());
                return loss + s.batch["penalty"];
              }),
              AllOf(HasSubstr("shape [7]"), HasSubstr("used by MulBackward0"),
                    HasSubstr("through 'penalty' of the batch")));
}

// A phase that takes place in every third batch, beside one that takes place in all.
std::string refused_in_a_rare_phase(const std::function<torch::Tensor(State&)>& rare_loss) {
  struct Rare : Runner {
    void handle_batch(State& s) override {
      s.set_loss(s.phase == "rare" ? rare_loss(s)
                                   : s.models["always"](s.batch["features"]).square().mean());
    }
    std::function<torch::Tensor(State&)> rare_loss;
  };
  Rare runner;
  runner.rare_loss = rare_loss;
  TrainOptions options = toy::options();
  options.model = {};
  options.criterion = {};
  options.optimizer = {};
  options.models = {{"always", torch::nn::Sequential(torch::nn::Linear(4, 1))},
                    {"rare", torch::nn::Sequential(torch::nn::Linear(4, 1))}};
  options.optimizers = {{"always", optim::SGD{.lr = 0.001}}, {"rare", optim::SGD{.lr = 0.001}}};
  options.phases = {"always", Phase{.name = "rare", .every = 3}};
  return toy::error_of([&] { runner.train(options); });
}

TEST(SideTraining, EveryPhaseIsWatchedTheFirstTwoTimesItTakesPlace) {
  const auto loss = [](State& s) { return s.models["rare"](s.batch["features"]).square().mean(); };
  EXPECT_EQ(refused_in_a_rare_phase(loss), "");
  auto other = torch::nn::Linear(4, 5);
  EXPECT_THAT(refused_in_a_rare_phase([&](State& s) {
                if (s.is_train) other->forward(s.batch["features"]).sum().backward();
                return loss(s);
              }),
              AllOf(HasSubstr("batch 3"), HasSubstr("called backward()")));
  EXPECT_THAT(refused_in_a_rare_phase(
                  [&](State& s) { return loss(s) + other->forward(s.batch["features"]).sum(); }),
              AllOf(HasSubstr("batch 6"), HasSubstr("shape [5")))
      << "the second time";
}

// A runner whose own handlers do what handle_batch must not do.
struct Handling : SupervisedRunner {
  using Function = std::function<void(State&)>;
  void on_forward(State& s) override { call(forward, s); }
  void on_batch_end(State& s) override { call(batch_end, s); }
  void on_step(State& s) override { call(step, s); }
  Function forward, batch_end, step;

 private:
  static void call(const Function& function, State& s) {
    if (function && s.is_train) function(s);
  }
};

std::string refused_with(Handling runner) {
  return toy::error_of([&] { runner.train(toy::options()); });
}

TEST(SideTraining, HandlersOfTheRunnerAreWatched) {
  auto other = torch::nn::Linear(4, 1);
  const auto trains_other = [&](State& s) { other->forward(s.batch["features"]).sum().backward(); };
  Handling in_batch_end;
  in_batch_end.batch_end = trains_other;
  EXPECT_THAT(refused_with(in_batch_end), HasSubstr("on_batch_end called backward()"));
  Handling in_forward;
  in_forward.forward = trains_other;
  EXPECT_THAT(refused_with(in_forward), HasSubstr("on_forward called backward()"));
  const auto shrink = [](State& s) {
    const torch::NoGradGuard no_grad;
    torch::Tensor(s.model.parameters()[0].second).mul_(0.5);
  };
  Handling in_step;
  in_step.step = shrink;
  EXPECT_THAT(refused_with(in_step), AllOf(HasSubstr("on_step changed the parameter '0.weight'"),
                                           HasSubstr("shape [16, 4]"), HasSubstr("change_model")));
  in_step.step = [&](State& s) { s.change_model([&] { shrink(s); }); };
  EXPECT_EQ(refused_with(in_step), "") << "the right way";
}

TEST(SideTraining, WhatIsAllowedIsNotRefused) {
  // A gradient penalty: a leaf that lives for one batch, and gradients that are returned.
  EXPECT_EQ(refused_because([](State& s, const torch::Tensor& loss) {
              if (!s.is_train) return loss;
              const auto inputs = s.batch["features"].clone().requires_grad_();
              const auto outputs = s.model(inputs).sum();
              const auto grads = torch::autograd::grad({outputs}, {inputs}, {}, true, true);
              return loss + grads[0].square().mean();
            }),
            "");
  // A network that is only used.
  auto fixed = torch::nn::Linear(4, 5);
  for (auto& parameter : fixed->parameters()) parameter.set_requires_grad(false);
  EXPECT_EQ(refused_because([&](State& s, const torch::Tensor& loss) {
              return loss + fixed->forward(s.batch["features"]).sum();
            }),
            "");
}

// Its parameters are not trained, but saved with the run.
TEST(SideTraining, TheCriterionBelongsToTheRun) {
  struct Scaled : torch::nn::Module {
    torch::Tensor scale = register_parameter("scale", torch::ones({}));
    torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) {
      return torch::cross_entropy_loss(x, y) * scale;
    }
  };
  TrainOptions options = toy::options();
  options.criterion = std::make_shared<Scaled>();
  EXPECT_EQ(options.criterion.parameters().size(), 1u);
  EXPECT_EQ(toy::error_of([&] { toy::train(options); }), "");
}

// Later batches cost nothing more.
TEST(SideTraining, OnlyTheFirstTwoTrainBatchesOfAPhaseAreWatched) {
  SideTraining side;
  State state;
  state.model = toy::model();
  state.progress.batch_step = 5;
  EXPECT_TRUE(side.watches(state)) << "the first batch after a resume";
  EXPECT_TRUE(side.watches(state)) << "another shard or phase of it";
  state.progress.batch_step = 6;
  EXPECT_TRUE(side.watches(state));
  state.progress.batch_step = 7;
  EXPECT_FALSE(side.watches(state));
  state.phase = "another";
  EXPECT_TRUE(side.watches(state)) << "its first batch";
  state.progress.batch_step = 10;
  EXPECT_TRUE(side.watches(state));
  state.progress.batch_step = 13;
  EXPECT_FALSE(side.watches(state));
}

}  // namespace
}  // namespace lockstep
