#include "lockstep/runner/criterion.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Criterion, TakesAModuleAndAFunction) {
  const auto outputs = torch::randn({5, 3});
  const auto targets = torch::tensor({0, 1, 2, 1, 0});
  const Criterion module = torch::nn::CrossEntropyLoss();
  const Criterion function = [](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::cross_entropy_loss(x, y);
  };
  EXPECT_TRUE(module(outputs, targets).equal(function(outputs, targets)));
  EXPECT_FALSE(Criterion());
}

struct ScaledImpl : torch::nn::Module {
  explicit ScaledImpl(double by) { factor = register_buffer("factor", torch::full({1}, by)); }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) {
    return ((x - y) * factor).square().mean();
  }
  torch::Tensor factor;
};
TORCH_MODULE(Scaled);

TEST(Criterion, ItsBuffersAreSavedAndLoaded) {
  const Criterion a = Scaled(5), b = Scaled(1);
  const auto x = torch::randn({4}), y = torch::randn({4});
  ASSERT_FALSE(a(x, y).equal(b(x, y)));
  b.load_state(a.state());
  EXPECT_TRUE(a(x, y).equal(b(x, y)));
  EXPECT_THROW(b.load_state({{"factor", torch::ones({4})}}), CheckpointError);
}

TEST(Criterion, KnowsWhatItsLossIsAMeanOver) {
  namespace nn = torch::nn;
  EXPECT_EQ(Criterion(nn::CrossEntropyLoss()).mean(), LossMean::kSamples);
  EXPECT_EQ(Criterion(nn::MSELoss()).mean(), LossMean::kSamples);
  EXPECT_EQ(Criterion(nn::MSELoss(nn::MSELossOptions(torch::kSum))).mean(), LossMean::kNone);
  EXPECT_EQ(Criterion(nn::KLDivLoss(nn::KLDivLossOptions(torch::kBatchMean))).mean(),
            LossMean::kSamples);
  const Criterion weighted =
      nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(torch::tensor({1.0f, 2.0f, 4.0f})));
  EXPECT_EQ(weighted.mean(), LossMean::kTargets);
  EXPECT_EQ(weighted.weight_of(torch::tensor({0, 2, 2, -100})), 9);
  EXPECT_EQ(weighted.weight_of(torch::rand({5, 3})), 5) << "probabilities are counted";
  const Criterion ignoring = nn::NLLLoss(nn::NLLLossOptions().ignore_index(1));
  EXPECT_EQ(ignoring.weight_of(torch::tensor({{0, 1}, {1, 2}})), 2);
}

}  // namespace
}  // namespace lockstep
