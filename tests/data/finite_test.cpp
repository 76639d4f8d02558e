#include "lockstep/data/finite.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

TEST(RequireFinite, NamesTheRowAndCounts) {
  const std::vector<std::int64_t> indices = {10, 20, 30};
  torch::Tensor rows = torch::zeros({3, 2, 2});
  EXPECT_NO_THROW(require_finite(rows, indices, "a.npy"));
  rows[1][1][0] = kNotANumber;
  rows[1][1][1] = std::numeric_limits<float>::infinity();
  rows[2][0][0] = kNotANumber;
  EXPECT_THAT(error_text<DataError>([&] { require_finite(rows, indices, "a.npy"); }),
              testing::HasSubstr("a.npy: row 20: value 2 is nan, and 2 of its 4 values"));
}

TEST(RequireFinite, TakesEveryType) {
  const std::vector<std::int64_t> indices = {0, 1};
  EXPECT_NO_THROW(require_finite(torch::zeros({2}, torch::kInt64), indices, "a"));
  for (const auto type : {torch::kFloat16, torch::kBFloat16, torch::kFloat64}) {
    EXPECT_NO_THROW(require_finite(torch::ones({2}).to(type), indices, "a"));
    EXPECT_THROW(require_finite(torch::tensor({1.F, kNotANumber}).to(type), indices, "a"),
                 DataError);
  }
  const torch::Tensor complex = torch::complex(torch::ones({2}), torch::tensor({1.F, kNotANumber}));
  EXPECT_THROW(require_finite(complex, indices, "a"), DataError);
}

TEST(RequireFinite, AnOverflowOfTheSumIsNotAValue) {
  const torch::Tensor large = torch::full({2, 2}, 1e308, torch::kFloat64);
  EXPECT_NO_THROW(require_finite(large, std::vector<std::int64_t>{0, 1}, "a"));
}

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
