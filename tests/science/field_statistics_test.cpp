#include "lockstep/science/field_statistics.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::science {
namespace {

using data::Normalization;
using ::testing::HasSubstr;

data::TensorDataset fields(const torch::Tensor& features) {
  return {features, torch::zeros({features.size(0), 1})};
}

data::ChannelScaling measured(const torch::Tensor& features, Normalization kind,
                              const std::vector<std::int64_t>& samples) {
  const auto dataset = fields(features);
  return measure({.fields = dataset, .samples = samples, .key = "features"}, kind);
}

TEST(FieldStatistics, AreThoseOfEachChannelOfTheseSamples) {
  torch::manual_seed(5);
  // A large mean: sums of squares would cancel.
  const torch::Tensor x = torch::rand({4, 2, 3, 5}) + 1000;
  const torch::Tensor used =
      x.index_select(0, torch::tensor({0, 2})).to(torch::kFloat64).transpose(0, 1).flatten(1);
  const auto standard = measured(x, Normalization::kStandard, {0, 2});
  const auto minmax = measured(x, Normalization::kMinMax, {0, 2});
  const auto log = measured(x, Normalization::kLog, {0, 2});
  ASSERT_EQ(standard.shift.size(), 2u);
  for (std::int64_t c = 0; c < 2; ++c) {
    const auto i = static_cast<std::size_t>(c);
    EXPECT_NEAR(standard.shift[i], used[c].mean().item<double>(), 1e-10);
    EXPECT_NEAR(standard.scale[i], used[c].std(false).item<double>(), 1e-10);
    EXPECT_EQ(minmax.shift[i], used[c].min().item<double>());
    EXPECT_EQ(minmax.scale[i], used[c].max().item<double>() - used[c].min().item<double>());
    EXPECT_NEAR(log.shift[i], used[c].log().mean().item<double>(), 1e-10);
    EXPECT_NEAR(log.scale[i], used[c].log().std(false).item<double>(), 1e-10);
  }
  EXPECT_EQ(measured(x, Normalization::kNone, {0, 2}), data::ChannelScaling());
}

TEST(FieldStatistics, DoNotDependOnThreads) {
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({2, 1, 64, 64, 64});
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  const auto one = measured(x, Normalization::kStandard, {0, 1});
  torch::set_num_threads(3);
  const auto three = measured(x, Normalization::kStandard, {0, 1});
  torch::set_num_threads(threads);
  EXPECT_EQ(one, three);
}

TEST(FieldStatistics, EqualValuesAreNotDividedByZero) {
  // 0.1 is rounded, so the mean of many of them is not one of them.
  const auto scaling =
      measured(torch::full({3, 1, 1000}, 0.1), Normalization::kStandard, {0, 1, 2});
  EXPECT_EQ(scaling.scale[0], 1);
  EXPECT_NEAR(scaling.shift[0], 0.1, 1e-8);
}

TEST(FieldStatistics, ASampleWithoutALogarithmIsNamed) {
  torch::Tensor x = torch::ones({3, 2, 4});
  x[1][1][2] = 0;
  try {
    measured(x, Normalization::kLog, {0, 1, 2});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sample 1: 'features', channel 1: normalize = log"));
  }
  EXPECT_NO_THROW(measured(x, Normalization::kLog, {0, 2})) << "it is not among these";
  x[1][1][2] = NAN;
  EXPECT_THROW(measured(x, Normalization::kMinMax, {0, 1, 2}), DataError);
}

}  // namespace
}  // namespace lockstep::science
