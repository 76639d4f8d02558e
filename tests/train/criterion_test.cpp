#include "lockstep/train/criterion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/loss/focal_loss.h"
#include "lockstep/loss/nt_xent_loss.h"

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
  EXPECT_THAT(
      [&] {
        b.load_state({{"factor", torch::ones({4})}});
      },
      ::testing::ThrowsMessage<CheckpointError>(
          ::testing::AllOf(::testing::HasSubstr("'factor'"), ::testing::HasSubstr("found [4]"))));
}

TEST(Criterion, RefusesShapesThatLibTorchWouldBroadcast) {
  namespace nn = torch::nn;
  const auto outputs = torch::rand({4, 1});
  const Criterion mse = nn::MSELoss();
  EXPECT_NO_THROW(mse.check_shapes(outputs, torch::rand({4, 1})));
  EXPECT_THROW(mse.check_shapes(outputs, torch::rand({4})), ConfigError);
  EXPECT_THROW(mse.check_shapes(outputs, torch::ones({4, 1}, torch::kInt64)), ConfigError);
  EXPECT_NO_THROW(Criterion(nn::CrossEntropyLoss()).check_shapes(outputs, torch::arange(4)));
  EXPECT_NO_THROW(Criterion(Scaled(2)).check_shapes(outputs, torch::rand({4}))) << "the user's own";
}

TEST(Criterion, RefusesClassesWithoutAnOutput) {
  namespace nn = torch::nn;
  const auto outputs = torch::rand({4, 3});
  const Criterion loss = nn::CrossEntropyLoss();
  EXPECT_NO_THROW(loss.check_classes(outputs, torch::tensor({0, 2, -100})));
  EXPECT_THAT(
      [&] {
        loss.check_classes(outputs, torch::tensor({0, 3}));
      },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("class 3")));
  EXPECT_THAT(
      [&] {
        loss.check_classes(outputs, torch::tensor({0, -1}));
      },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("ignore_index")));
  EXPECT_NO_THROW(Criterion(nn::MSELoss()).check_classes(outputs, torch::tensor({7})));
}

TEST(Criterion, KnowsWhatItsLossIsAMeanOver) {
  namespace nn = torch::nn;
  const auto outputs = torch::rand({4, 3});
  const auto over = [&](const Criterion& criterion, const torch::Tensor& targets) {
    return criterion.over(outputs, targets);
  };
  const auto classes = torch::tensor({0, 2, 2, -100});
  EXPECT_EQ(over(nn::CrossEntropyLoss(), classes), mean_over(3)) << "-100 never counts";
  EXPECT_EQ(over(nn::CrossEntropyLoss(), torch::tensor({0, 1, 2, 1})), mean_over(4));
  EXPECT_EQ(over(nn::CrossEntropyLoss(), classes.to(torch::kInt32)), mean_over(3));
  EXPECT_EQ(over(nn::CrossEntropyLoss(), torch::full({2, 2, 2}, -100)), mean_over(0));
  EXPECT_EQ(over(nn::MSELoss(), outputs), mean_over_samples());
  EXPECT_EQ(over(nn::MSELoss(nn::MSELossOptions(torch::kSum)), outputs), sum_over_samples());
  EXPECT_EQ(
      over(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().reduction(torch::kSum)), classes),
      sum_over_samples());
  EXPECT_EQ(over(nn::KLDivLoss(nn::KLDivLossOptions(torch::kBatchMean)), outputs),
            mean_over_samples());
  const Criterion weighted =
      nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(torch::tensor({1.0f, 2.0f, 4.0f})));
  EXPECT_EQ(over(weighted, classes), mean_over(9));
  EXPECT_EQ(over(weighted, torch::rand({5, 3})), mean_over(5)) << "probabilities are counted";
  const Criterion ignoring = nn::NLLLoss(nn::NLLLossOptions().ignore_index(1));
  EXPECT_EQ(over(ignoring, torch::tensor({{0, 1}, {1, 2}})), mean_over(2)) << "pixels";
}

// The weight is the number by which LibTorch itself divides: the mean times the weight is the sum.
TEST(Criterion, TheWeightIsWhatLibTorchDividesBy) {
  namespace nn = torch::nn;
  torch::manual_seed(1);
  const auto outputs = torch::randn({4, 3, 2, 2});
  auto pixels = torch::randint(3, {4, 2, 2}, torch::kInt64);
  pixels.index_put_({0, 1}, -100);
  const auto weight = torch::tensor({0.5f, 2.0f, 3.0f});
  const auto probabilities = torch::rand({4, 3, 2, 2});
  for (const auto& [targets, weights] :
       {std::pair(pixels, torch::Tensor()), std::pair(pixels, weight),
        std::pair(probabilities, torch::Tensor()), std::pair(probabilities, weight)}) {
    const auto options = nn::CrossEntropyLossOptions().weight(weights);
    const Criterion mean = nn::CrossEntropyLoss(options);
    auto summing = options;
    const Criterion sum = nn::CrossEntropyLoss(summing.reduction(torch::kSum));
    EXPECT_NEAR(mean(outputs, targets).item<double>() * mean.over(outputs, targets).weight,
                sum(outputs, targets).item<double>(), 1e-4);
  }
}

// A module of Lockstep or of a user says what it is a mean over.
TEST(Criterion, AsksAStatedLoss) {
  const Criterion focal = FocalLoss(FocalLossOptions{.ignore_index = 7});
  EXPECT_EQ(focal.over(torch::ones({3, 2}), torch::tensor({0, 7, 1})), mean_over(2));
  EXPECT_FALSE(focal.mixes_samples());
  EXPECT_TRUE(Criterion(NTXentLoss()).mixes_samples());
  EXPECT_EQ(Criterion(NTXentLoss()).over(torch::ones({3, 2}), torch::ones({3, 2})),
            mean_over_samples());
  EXPECT_FALSE(Criterion(torch::nn::MSELoss()).mixes_samples());
  EXPECT_FALSE(Criterion().mixes_samples());
}

TEST(Criterion, CanBeAMeanOverSamplesIfThatIsTheSame) {
  namespace nn = torch::nn;
  const auto scores = torch::randn({4, 3, 2});
  const auto pixels = torch::randint(3, {4, 2});
  const Criterion loss = Criterion(nn::CrossEntropyLoss()).over_samples();
  EXPECT_EQ(loss.over(scores, pixels), mean_over_samples());
  EXPECT_EQ(loss.over(scores, torch::rand({4, 3, 2})), mean_over_samples());
  EXPECT_EQ(Criterion(nn::MSELoss()).over_samples().over(scores, scores), mean_over_samples());
  pixels[1][1] = -100;
  EXPECT_THAT([&] { loss.over(scores, pixels); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(
                  "all 8 targets of a batch count the same, got a weight of 7")));
  EXPECT_THROW(Criterion(nn::MSELoss()).as_sum().over_samples().over(scores, scores), ConfigError);
}

TEST(Criterion, SaysWhatItWasToldOfYourOwn) {
  const Criterion own = [](const torch::Tensor& x, const torch::Tensor&) { return x.mean(); };
  const auto x = torch::ones({4, 2});
  EXPECT_EQ(own.over(x, x), mean_over_samples());
  const auto count = [](const torch::Tensor&, const torch::Tensor& y) {
    return static_cast<double>(y.numel());
  };
  EXPECT_EQ(own.mean_over(count).over(x, x), mean_over(8));
  EXPECT_EQ(own.as_sum().over(x, x), sum_over_samples());
  EXPECT_EQ(own.over(x, x), mean_over_samples()) << "the criterion itself has not changed";
  EXPECT_THROW(own.mean_over({}), ConfigError);
}

}  // namespace
}  // namespace lockstep
