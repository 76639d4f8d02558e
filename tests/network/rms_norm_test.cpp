#include "lockstep/network/rms_norm.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::network {
namespace {

TEST(RMSNorm, DividesByTheRootOfTheMeanSquare) {
  RMSNorm norm(RMSNormOptions{.features = 2});
  const torch::NoGradGuard no_grad;
  norm->parameters()[0].copy_(torch::tensor({1.0, 10.0}));
  const auto y = norm(torch::tensor({{3.0, 4.0}, {0.0, 0.0}}));
  const double size = std::sqrt(12.5);
  EXPECT_TRUE(torch::allclose(y, torch::tensor({{3 / size, 40 / size}, {0.0, 0.0}})));
}

TEST(RMSNorm, NeedsNoScales) {
  RMSNorm norm(RMSNormOptions{.features = 2, .elementwise_affine = false});
  EXPECT_TRUE(norm->parameters().empty());
  EXPECT_NEAR(norm(torch::tensor({5.0, 5.0}))[0].item<double>(), 1, 1e-5);
}

TEST(RMSNorm, RefusesBadValues) {
  EXPECT_THROW(RMSNorm(RMSNormOptions{}), ConfigError);
  EXPECT_THROW(RMSNorm(RMSNormOptions{.features = 2})(torch::ones({3})), DataError);
}

}  // namespace
}  // namespace lockstep::network
