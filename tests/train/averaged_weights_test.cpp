#include "lockstep/train/averaged_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A run of one process whose only weights are two numbers.
class AveragedWeightsTest : public testing::Test {
 protected:
  AveragedWeightsTest() {
    torch::nn::Linear linear(torch::nn::LinearOptions(2, 1).bias(false));
    model_ = torch::nn::Sequential(linear);
    state_.model = model_;
    state_.models = {{"model", model_}};
    state_.comm = &alone_;
    state_.change_model = [this](const std::function<void()>& change) {
      ++changes_;
      change();
    };
    set(1, 2);
  }

  void set(float first, float second) {
    const torch::NoGradGuard no_grad;
    model_.parameters()[0].second.copy_(torch::tensor({{first, second}}));
  }
  static std::vector<float> numbers(const StateDict& weights) {
    const torch::Tensor tensor = weights.get<torch::Tensor>("0.weight");
    return {tensor[0][0].item<float>(), tensor[0][1].item<float>()};
  }
  std::vector<float> of_model() { return numbers(model_.state()); }

  comm::Local alone_;
  Model model_;
  State state_;
  int changes_ = 0;
};

using Numbers = std::vector<float>;

TEST_F(AveragedWeightsTest, TheModelHasOneOfBoth) {
  AveragedWeights averaged(state_);
  averaged.open({.asked_by = "test"});
  averaged.use();
  EXPECT_FALSE(averaged.is_used()) << "there is no average yet";
  EXPECT_EQ(averaged.trained().size(), 0U);
  averaged.add(0.5);  // the first one is a copy
  set(3, 6);
  averaged.add(0.5);
  EXPECT_EQ(numbers(averaged.for_use()), Numbers({2, 4}));
  EXPECT_EQ(numbers(averaged.trained()), Numbers({3, 6}));
  EXPECT_EQ(of_model(), Numbers({3, 6}));
  averaged.use();
  EXPECT_EQ(of_model(), Numbers({2, 4}));
  EXPECT_EQ(numbers(averaged.for_use()), Numbers({2, 4}));
  EXPECT_EQ(numbers(averaged.trained()), Numbers({3, 6}));
  EXPECT_THAT(toy::error_of([&] { averaged.add(0.5); }), HasSubstr("cannot change while"));
  averaged.release();
  averaged.release();
  EXPECT_EQ(of_model(), Numbers({3, 6}));
  EXPECT_EQ(changes_, 2);
}

TEST_F(AveragedWeightsTest, GoesOnFromACheckpoint) {
  AveragedWeights averaged(state_);
  averaged.load({{"0.weight", torch::tensor({{5.0F, 7.0F}})}});
  EXPECT_FALSE(averaged.exists()) << "no callback asks for it";
  averaged.open({.asked_by = "test"});
  EXPECT_TRUE(averaged.exists());
  averaged.add(0.5);
  EXPECT_EQ(numbers(averaged.for_use()), Numbers({3, 4.5}));
}

TEST_F(AveragedWeightsTest, AnAverageOfOtherWeightsIsNotTaken) {
  toy::Warnings warnings;
  AveragedWeights averaged(state_);
  averaged.load({{"1.weight", torch::ones({1, 2})}});
  averaged.open({.asked_by = "test"});
  EXPECT_FALSE(averaged.exists());
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("a new average begins")));
}

TEST_F(AveragedWeightsTest, BatchNormIsRemadeOnlyIfThereAreBuffers) {
  AveragedWeights averaged(state_);
  averaged.open({.asked_by = "test", .remake_batch_norm = true});
  averaged.add(1);
  EXPECT_FALSE(averaged.needs_batch_norm());
  state_.model = toy::model();
  AveragedWeights other(state_);
  other.open({.asked_by = "test", .remake_batch_norm = true});
  other.add(1);
  EXPECT_TRUE(other.needs_batch_norm());
  other.note_batch_norm(/*has_batch_norm=*/false);
  other.add(1);
  EXPECT_FALSE(other.needs_batch_norm()) << "its buffers are not those of a batch norm";
}

TEST_F(AveragedWeightsTest, ACheckpointSaysWhetherBatchNormIsRemade) {
  state_.model = toy::model();
  const auto needs_after = [&](bool was_needed, bool remakes) {
    AveragedWeights averaged(state_);
    averaged.load(state_.model.state(), was_needed);
    averaged.open({.asked_by = "test", .remake_batch_norm = remakes});
    EXPECT_TRUE(averaged.exists());
    return averaged.needs_batch_norm();
  };
  EXPECT_TRUE(needs_after(true, true));
  EXPECT_FALSE(needs_after(false, true));
  EXPECT_FALSE(needs_after(true, false)) << "the callback does not ask for it any more";
}

// One tensor under two names.
struct TiedNumbers : torch::nn::Module {
  TiedNumbers() {
    register_parameter("encoder", weight);
    register_parameter("decoder", weight);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight * weight; }

  torch::Tensor weight = torch::zeros({1});
};

// The number that both names have.
float tied_number(const StateDict& weights) {
  EXPECT_EQ(weights.keys(), (std::vector<std::string>{"encoder", "decoder"}));
  const torch::Tensor encoder = weights.get<torch::Tensor>("encoder");
  EXPECT_TRUE(encoder.equal(weights.get<torch::Tensor>("decoder")));
  return encoder.item<float>();
}

TEST_F(AveragedWeightsTest, TiedWeightsAreOneWeightWithTwoNames) {
  const auto net = std::make_shared<TiedNumbers>();
  const auto set_number = [&](double value) {
    const torch::NoGradGuard no_grad;
    net->weight.fill_(value);
  };
  state_.model = net;
  state_.models = {{"model", state_.model}};
  AveragedWeights averaged(state_);
  averaged.open({.asked_by = "test"});
  set_number(1);
  averaged.add(1);
  set_number(3);
  averaged.add(0.5);
  EXPECT_EQ(tied_number(averaged.for_use()), 2);
  EXPECT_EQ(tied_number(averaged.trained()), 3);
  averaged.use();
  EXPECT_EQ(net->weight.item<float>(), 2);
  EXPECT_EQ(tied_number(averaged.for_use()), 2);
  EXPECT_EQ(tied_number(averaged.trained()), 3);
  averaged.release();
  EXPECT_EQ(net->weight.item<float>(), 3) << "training goes on with the trained weights";

  AveragedWeights resumed(state_);
  resumed.load(averaged.for_use());
  resumed.open({.asked_by = "test"});
  ASSERT_TRUE(resumed.exists());
  resumed.add(0.5);
  EXPECT_EQ(tied_number(resumed.for_use()), 2.5);
}

TEST_F(AveragedWeightsTest, OneCallbackOnly) {
  AveragedWeights averaged(state_);
  averaged.open({.asked_by = "first"});
  EXPECT_THAT(toy::error_of([&] { averaged.open({.asked_by = "second"}); }),
              HasSubstr("second: first averages the weights already"));
}

TEST_F(AveragedWeightsTest, WithoutAnAverageTheWeightsForUseAreTheModels) {
  EXPECT_EQ(content_hash(weights_for_use(state_)), content_hash(model_.state()));
}

}  // namespace
}  // namespace lockstep
