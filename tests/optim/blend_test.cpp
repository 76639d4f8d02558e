#include "lockstep/optim/blend.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/utils.h>

namespace lockstep::optim {
namespace {

TEST(Blend, MovesEveryElementByTheWeight) {
  torch::manual_seed(3);
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const torch::Tensor values = torch::randn({1003}).to(type);
    const torch::Tensor others = torch::randn({1003}).to(type);
    const torch::Tensor expected =
        values.to(torch::kFloat64) * 0.9 + others.to(torch::kFloat64) * 0.1;
    blend(values, others, 0.1);
    const double tolerance = type == torch::kBFloat16 ? 2e-2 : 1e-6;
    EXPECT_TRUE(values.to(torch::kFloat64).allclose(expected, tolerance, tolerance)) << type;
  }
}

TEST(Blend, CopiesIntegersAndWithAWeightOfOne) {
  const torch::Tensor counts = torch::tensor({1, 2}, torch::kInt64);
  blend(counts, torch::tensor({7, 9}, torch::kInt64), 0.1);
  EXPECT_TRUE(counts.equal(torch::tensor({7, 9}, torch::kInt64)));
  // 1 + (1e-9 - 1) would be 0 in float32.
  const torch::Tensor values = torch::ones({1});
  blend(values, torch::full({1}, 1e-9F), 1.0);
  EXPECT_EQ(values.item<float>(), 1e-9F);
}

TEST(Blend, HasTheSameBitsForAnyNumberOfThreadsAndAnyLayout) {
  torch::manual_seed(4);
  const torch::Tensor start = torch::randn({300, 1000});
  const torch::Tensor others = torch::randn({300, 1000});
  const torch::Tensor one = start.clone();
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  blend(one, others, 0.3);
  torch::set_num_threads(3);
  const torch::Tensor three = start.clone();
  blend(three, others, 0.3);
  torch::set_num_threads(threads);
  const torch::Tensor turned = start.t().contiguous().t();
  blend(turned, others, 0.3);
  EXPECT_TRUE(one.equal(three));
  EXPECT_TRUE(one.equal(turned));
}

TEST(Blend, ChangesAParameterWithoutAGraph) {
  const torch::Tensor parameter = torch::zeros({2}, torch::requires_grad());
  blend(parameter, torch::ones({2}), 0.5);
  EXPECT_TRUE(parameter.is_leaf());
  EXPECT_TRUE(parameter.detach().equal(torch::full({2}, 0.5)));
}

}  // namespace
}  // namespace lockstep::optim
