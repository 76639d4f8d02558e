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
              AllOf(HasSubstr("called backward()"), HasSubstr(".phases"),
                    HasSubstr("torch::autograd::grad")));
}

TEST(SideTraining, BackwardOfAnotherNetworkIsRefused) {
  auto other = torch::nn::Linear(4, 1);
  EXPECT_THAT(refused_because([&](State& s, const torch::Tensor& loss) {
                other->forward(s.batch["features"]).sum().backward();
                return loss;
              }),
              HasSubstr("called backward()"));
}

TEST(SideTraining, AChangeOfAParameterIsRefused) {
  EXPECT_THAT(refused_because([](State& s, const torch::Tensor& loss) {
                const torch::NoGradGuard no_grad;
                torch::Tensor(s.model.parameters()[2].second).clamp_(-0.01, 0.01);
                return loss;
              }),
              AllOf(HasSubstr("changed the parameter '1.weight'"), HasSubstr("change_model")));
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
TEST(SideTraining, OnlyTheFirstTwoTrainBatchesAreWatched) {
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
}

}  // namespace
}  // namespace lockstep
