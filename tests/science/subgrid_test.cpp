#include "lockstep/science/subgrid.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

const Filter kBox = [](const torch::Tensor& field) { return box_filter(field, 3); };

TEST(Subgrid, AreThoseOfNumPy) {
  const auto golden = testing::golden();
  const torch::Tensor u = testing::velocity();
  testing::expect_near(gradient_model(u, {.filter_width = 2}), golden["gradient_model"]);
  testing::expect_near(reynolds_stress(u, kBox), golden["reynolds"]);
  const SmagorinskyModel model = dynamic_smagorinsky(u, kBox);
  EXPECT_NEAR(model.coefficient, golden["smagorinsky"]["coefficient"].get<double>(), 1e-5);
  testing::expect_near(model.stress, golden["smagorinsky"]["stress"]);
}

TEST(Subgrid, OfAUniformFlowThereIsNone) {
  const torch::Tensor u = torch::ones({3, 6, 6, 6});
  EXPECT_NEAR(reynolds_stress(u, kBox).abs().max().item<double>(), 0, 1e-12);
  EXPECT_EQ(gradient_model(u).abs().max().item<double>(), 0);
  EXPECT_EQ(dynamic_smagorinsky(u, kBox).coefficient, 0);
}

TEST(Subgrid, TheGradientModelIsCloseWhereTheFlowIsSmooth) {
  // For a box filter of width w on a smooth field, the stress is w²/12 of the gradients' product.
  const torch::Tensor x = 2 * M_PI * torch::arange(64, torch::kFloat64) / 64;
  const torch::Tensor u = torch::stack(
      {torch::sin(x).unsqueeze(1).expand({64, 64}), torch::cos(x).unsqueeze(0).expand({64, 64})});
  const torch::Tensor stress = reynolds_stress(u, kBox);
  // The filter here averages three points, whose variance is 2/3, not 9/12 as for a line.
  const torch::Tensor model = gradient_model(u, {.filter_width = std::sqrt(8.0)});
  EXPECT_LT((stress - model).norm().item<double>(), 0.02 * stress.norm().item<double>());
}

TEST(Subgrid, SmagorinskysStressHasNoTraceWhereTheFlowDiverges) {
  const torch::Tensor u = testing::velocity();
  ASSERT_GT(torch::diagonal(velocity_gradient(u), 0, 0, 1).sum(-1).abs().max().item<double>(), 0.1);
  const torch::Tensor stress = dynamic_smagorinsky(u, kBox).stress;
  EXPECT_LT(torch::diagonal(stress, 0, 0, 1).sum(-1).abs().max().item<double>(), 1e-9);
  EXPECT_GT(stress.abs().max().item<double>(), 1e-3);
}

// u = (sin x, 0) in a box of 2 pi x 8, with another number of points in each direction.
TEST(Subgrid, ABoxHasASpacingInEachDirection) {
  const torch::Tensor x = 2 * M_PI * torch::arange(32, torch::kFloat64) / 32;
  const torch::Tensor wave = torch::sin(x).unsqueeze(1).expand({32, 16});
  const torch::Tensor u = torch::stack({wave, wave.t().reshape({32, 16})});
  const BoxLengths box = {2 * M_PI, 8};
  const torch::Tensor gradient = velocity_gradient(u, box);
  EXPECT_LT((gradient[0][0] - torch::cos(x).unsqueeze(1)).abs().max().item<double>(), 0.01);
  EXPECT_TRUE(torch::allclose(gradient[1][1], velocity_gradient(u, 0.5)[1][1]));
  EXPECT_TRUE(velocity_gradient(u, BoxLengths{}).equal(velocity_gradient(u)));
  const torch::Tensor model = gradient_model(u, {.filter_width = 2, .box = box});
  EXPECT_TRUE(torch::allclose(model[0][1], (gradient[0] * gradient[1]).sum(0) / 3));
  EXPECT_THROW(velocity_gradient(u, BoxLengths{1, 1, 1}), ConfigError);
  EXPECT_THROW(dynamic_smagorinsky(u, kBox, {.box = {1, -1}}), ConfigError);
}

TEST(Subgrid, RefusesWhatIsNoVelocity) {
  EXPECT_THROW(dynamic_smagorinsky(torch::rand({1, 8}), kBox), DataError);
  EXPECT_THROW(velocity_gradient(torch::ones({2, 4, 4, 4})), DataError);
  EXPECT_THROW(velocity_gradient(torch::ones({4})), DataError);
}

}  // namespace
}  // namespace lockstep::science
