#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

// Weights and biases after one step. All start at one, and all gradients are one.
std::vector<double> after_step(const std::string& optimizer) {
  torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  torch::Tensor bias = torch::ones({1}, torch::requires_grad());
  optim::FlatParameters parameters({{"0.weight", weight}, {"0.bias", bias}});
  const auto made = targets().optimizers.make(node(optimizer)).make(parameters);
  for (torch::Tensor* parameter : {&weight, &bias}) parameter->mutable_grad().fill_(1);
  made->step();
  return {weight.item<double>(), bias.item<double>()};
}

TEST(Optimizers, OptionsReachThem) {
  EXPECT_THAT(after_step("{SGD: {lr: 0.5}}"), ::testing::ElementsAre(0.5, 0.5));
  EXPECT_THAT(after_step("{SGD: {lr: 0.5, weight_decay: 1}}"), ::testing::ElementsAre(0.0, 0.0));
  EXPECT_THAT(after_step("{SGD: {lr: 0.5, weight_decay: 1, no_bias_weight_decay: true}}"),
              ::testing::ElementsAre(0.0, 0.5));
  EXPECT_THAT(after_step("{SGD: {lr: 0.5, layers: {'*.bias': {lr: 0.25}}}}"),
              ::testing::ElementsAre(0.5, 0.75));
  EXPECT_THAT(after_step("{SGD: {lr: 0.5, layers: {'*.bias': {lr_factor: 0.5}}}}"),
              ::testing::ElementsAre(0.5, 0.75));
  EXPECT_TRUE(targets()
                  .optimizers.make(node("{SGD: {lr: 0.5, layers: {'*.bias': {frozen: true}}}}"))
                  .freezes("0.bias"));
  for (const char* const name : {"Adam", "AdamW", "RMSprop", "Adagrad", "RAdam", "NAdam", "Adamax",
                                 "Adadelta", "Lion", "Lamb", "{Lookahead: {optimizer: Adam}}"}) {
    EXPECT_LT(after_step(name)[0], 1.0) << name;
  }
}

TEST(Optimizers, CanBeInsideOfLookahead) {
  // A step of 0.5, of which a quarter remains; biases have their own rate.
  EXPECT_THAT(after_step("{Lookahead: {k: 1, alpha: 0.25, optimizer: {SGD: {lr: 0.5, layers: "
                         "{'*.bias': {lr: 1}}}}}}"),
              ::testing::ElementsAre(0.875, 0.75));
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().optimizers.make(node(text)); });
  };
  EXPECT_THAT(error("Lookahead"), HasSubstr("optimizer is missing"));
  EXPECT_THAT(error("{Lookahead: {optimizer: Adam, k: 0}}"), HasSubstr("it/Lookahead/k"));
  EXPECT_THAT(error("{Lookahead: {optimizer: {Adam: {lr: -1}}}}"),
              HasSubstr("it/Lookahead/optimizer/Adam/lr"));
}

// A plugin adds its classes in the same way.
TEST(Optimizers, OfAUserHaveAName) {
  struct Options {
    double lr = 0.5;
  };
  class Sign : public optim::Optimizer {
   public:
    Sign(optim::FlatParameters& parameters, double lr) : parameters_(parameters), lr_(lr) {}
    std::string name() const override { return "Sign"; }
    void step(const optim::StepOptions& options) override {
      optim::update_each(parameters_, options, [this](const auto& slice, const auto& gradient) {
        slice.parameter.sub_(gradient.sign(), lr_);
      });
    }
    double lr() const override { return lr_; }
    void set_lr(double lr) override { lr_ = lr; }
    StateDict state() const override { return {{"lr", lr_}}; }
    void load_state(const StateDict& state) override { lr_ = state.get<double>("lr"); }

   private:
    optim::FlatParameters& parameters_;
    double lr_;
  };
  targets().optimizers.add<Options>("SignOfUser", "Steps of equal size.",
                                    {{"lr", &Options::lr, "learning rate"}}, [](const Options& o) {
                                      return [o](optim::FlatParameters& parameters) {
                                        return std::make_unique<Sign>(parameters, o.lr);
                                      };
                                    });
  EXPECT_THAT(after_step("{SignOfUser: {lr: 0.25}}"), ::testing::ElementsAre(0.75, 0.75));
  EXPECT_THAT(after_step("SignOfUser"), ::testing::ElementsAre(0.5, 0.5));
}

TEST(Optimizers, AreCheckedBeforeTheyAreUsed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().optimizers.make(node(text)); });
  };
  EXPECT_THAT(error("{Adam: {lr: -1}}"), HasSubstr("it/Adam/lr: expected a number >= 0, got -1"));
  EXPECT_THAT(error("{SGD: {nesterov: true}}"), HasSubstr("momentum (with nesterov)"));
  EXPECT_THAT(error("{Adam: {layers: {'*': {momentum: 1}}}}"), HasSubstr("unknown key 'momentum'"));
  EXPECT_THAT(error("{Adam: {layers: 3}}"), HasSubstr("expected a mapping of parameters' names"));
}

}  // namespace
}  // namespace lockstep::recipe
