#include "lockstep/loss/nt_xent_loss.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The formula of the paper, one row at a time.
double by_hand(const torch::Tensor& left, const torch::Tensor& right, double temperature) {
  const auto rows = torch::cat({left, right});
  const std::int64_t count = rows.size(0);
  const auto similarity = [&](std::int64_t i, std::int64_t j) {
    const auto product = rows[i].dot(rows[j]) / (rows[i].norm() * rows[j].norm());
    return std::exp(product.item<double>() / temperature);
  };
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double all = 0;
    for (std::int64_t j = 0; j < count; ++j) all += i == j ? 0 : similarity(i, j);
    sum -= std::log(similarity(i, (i + count / 2) % count) / all);
  }
  return sum / static_cast<double>(count);
}

TEST(NTXentLoss, IsThatOfThePaper) {
  torch::manual_seed(1);
  const auto left = torch::randn({5, 3}, torch::kFloat64);
  const auto right = torch::randn({5, 3}, torch::kFloat64);
  for (const double temperature : {0.5, 0.1}) {
    const NTXentLoss loss(NTXentLossOptions{.temperature = temperature});
    EXPECT_NEAR(loss->forward(left, right).item<double>(), by_hand(left, right, temperature), 1e-9);
  }
}

TEST(NTXentLoss, ItsGradientsAreFinite) {
  const auto left = torch::randn({4, 3}).requires_grad_();
  NTXentLoss()->forward(left, torch::randn({4, 3})).backward();
  EXPECT_TRUE(left.grad().isfinite().all().item<bool>());
  EXPECT_GT(left.grad().abs().sum().item<double>(), 0);
}

// There is nothing to compare it with.
TEST(NTXentLoss, OfASingleSampleIsZero) {
  EXPECT_EQ(NTXentLoss()->forward(torch::ones({1, 2}), torch::ones({1, 2})).item<double>(), 0);
}

TEST(NTXentLoss, RefusesOtherShapesAndTemperatures) {
  EXPECT_THROW(NTXentLoss()->forward(torch::ones({2, 3}), torch::ones({3, 3})), ConfigError);
  EXPECT_THROW(NTXentLoss()->forward(torch::ones({2}), torch::ones({2})), ConfigError);
  EXPECT_THROW(NTXentLoss(NTXentLossOptions{.temperature = 0}), ConfigError);
}

TEST(NTXentLoss, RanksCompareItsTemperature) {
  EXPECT_EQ(c10::str(*NTXentLoss(NTXentLossOptions{.temperature = 0.25})),
            "NTXentLoss(temperature=0.25)");
}

}  // namespace
}  // namespace lockstep
