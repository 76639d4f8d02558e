#include "lockstep/data/finite.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::data {
namespace {

TEST(Finite, TheFirstOfSeveralIsFound) {
  torch::Tensor values = torch::zeros({2, 3, 4});
  EXPECT_FALSE(find_non_finite(values));
  values[1][2][0] = NAN;
  values[0][1][3] = -HUGE_VAL;
  const auto found = find_non_finite(values);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count, 2);
  EXPECT_EQ(found->index, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(found->value, -HUGE_VAL);
}

// Two infinite values of different signs, and sums that overflow.
TEST(Finite, SumsDoNotMislead) {
  EXPECT_EQ(find_non_finite(torch::tensor({HUGE_VAL, -HUGE_VAL}))->count, 2);
  EXPECT_FALSE(find_non_finite(torch::full({8}, 1.7e308, torch::kFloat64)));
  EXPECT_FALSE(find_non_finite(torch::full({1000}, 6e4, torch::kFloat16)));
}

TEST(Finite, OtherTypesAndEmptyTensors) {
  EXPECT_FALSE(find_non_finite(torch::arange(4)));
  EXPECT_FALSE(find_non_finite(torch::zeros({0, 3})));
  const auto one = find_non_finite(torch::tensor(NAN));
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->index.empty()) << "a number has no index";
}

}  // namespace
}  // namespace lockstep::data
