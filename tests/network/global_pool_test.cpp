#include "lockstep/network/global_pool.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::network {
namespace {

TEST(GlobalPool, IsOverAllPositionsOfAnyShape) {
  for (const auto& shape : {std::vector<std::int64_t>{2, 3, 10}, {2, 3, 5, 2}, {2, 3, 1, 5, 2}}) {
    const auto x = torch::randn(shape);
    const auto flat = x.reshape({2, 3, 10});
    EXPECT_TRUE(torch::allclose(GlobalAvgPool()(x), flat.mean(-1)));
    EXPECT_TRUE(torch::equal(GlobalMaxPool()(x), std::get<0>(flat.max(-1))));
    EXPECT_TRUE(torch::allclose(GlobalConcatPool()(x),
                                torch::cat({flat.mean(-1), std::get<0>(flat.max(-1))}, 1)));
    EXPECT_EQ(GlobalAttentionPool(3)(x).sizes(), (std::vector<std::int64_t>{2, 3}));
  }
  EXPECT_THROW(GlobalAvgPool()(torch::ones({2, 3})), DataError);
}

TEST(GeMPool, IsTheMeanOfPowers) {
  const auto x = torch::tensor({1.0, 2.0, 4.0, -8.0}).reshape({1, 1, 2, 2});
  EXPECT_NEAR(GeMPool()(x).item<double>(), std::cbrt((1 + 8 + 64) / 4.0), 1e-5);
  EXPECT_NEAR(GeMPool(GeMPoolOptions{.p = 1})(x).item<double>(), 7 / 4.0, 1e-5);
  EXPECT_NEAR(GeMPool(GeMPoolOptions{.p = 30})(x).item<double>(), 4, 0.2) << "nearly the maximum";
}

TEST(GeMPool, LearnsItsPower) {
  const auto x = torch::rand({2, 3, 4});
  GeMPool pool;
  pool(x).sum().backward();
  ASSERT_EQ(pool->parameters().size(), 1u);
  EXPECT_NE(pool->parameters()[0].grad().item<double>(), 0);
  const GeMPool fixed(GeMPoolOptions{.trainable = false});
  EXPECT_TRUE(fixed->parameters().empty());
  EXPECT_EQ(fixed->buffers().size(), 1u);
}

// With equal scores it is a mean; a position with a much higher score counts alone.
TEST(GlobalAttentionPool, IsAMeanByScores) {
  GlobalAttentionPool pool(2);
  const torch::NoGradGuard no_grad;
  const auto x = torch::tensor({{{1.0, 2.0, 6.0}, {0.0, 1.0, 0.0}}});
  for (auto& parameter : pool->parameters()) parameter.zero_();
  EXPECT_TRUE(torch::allclose(pool(x), torch::tensor({{3.0, 1 / 3.0}})));
  pool->named_parameters()["score.weight"].copy_(torch::tensor({{0.0, 100.0}}));
  EXPECT_TRUE(torch::allclose(pool(x), torch::tensor({{2.0, 1.0}})));
}

TEST(GlobalPool, RefusesBadValues) {
  EXPECT_THROW(GeMPool(GeMPoolOptions{.p = 0}), ConfigError);
  EXPECT_THROW(GlobalAttentionPool(0), ConfigError);
}

}  // namespace
}  // namespace lockstep::network
