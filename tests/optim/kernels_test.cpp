#include "lockstep/optim/kernels.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::optim::kernels {
namespace {

constexpr std::int64_t kSize = 1003;

// Random values and gradients, with state that is not negative, as squares are.
template <typename T>
struct Data {
  explicit Data(bool third_state) : third_state(third_state) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (auto* array : {&values, &grads}) {
      for (T& x : *array) x = static_cast<T>(normal(random));
    }
    for (auto& array : state) {
      for (T& x : array) x = static_cast<T>(std::abs(normal(random)));
    }
  }

  Arrays<T> arrays() {
    return {.values = values.data(),
            .grads = grads.data(),
            .state = {state[0].data(), state[1].data(), third_state ? state[2].data() : nullptr}};
  }

  bool operator==(const Data&) const = default;

  bool third_state;
  std::vector<T> values = std::vector<T>(kSize);
  std::vector<T> grads = std::vector<T>(kSize);
  std::vector<std::vector<T>> state = std::vector<std::vector<T>>(3, std::vector<T>(kSize));
};

template <typename T, typename Update>
void expect_split_does_not_matter(const Update& update, bool third_state = false) {
  Data<T> whole(third_state);
  apply(update, whole.arrays(), {.begin = 0, .end = kSize});
  EXPECT_NE(whole.values, Data<T>(third_state).values);
  Data<T> split(third_state);
  const std::int64_t cuts[] = {0, 1, 3, 10, 33, 100, 640, 641, 998, kSize};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
    apply(update, split.arrays(), {.begin = cuts[i], .end = cuts[i + 1]});
  }
  EXPECT_TRUE(whole == split);
}

template <typename T>
class SplitTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SplitTest, Types);

TYPED_TEST(SplitTest, BitsDoNotDependOnTheRanges) {
  const GradientUse gradient{.scale = 0.3};
  const AdamUpdate adam{.gradient = gradient,
                        .beta1 = 0.9,
                        .beta2 = 0.99,
                        .eps = 1e-8,
                        .weight_decay = 0.1,
                        .shrink = 0.99,
                        .step_size = 0.013,
                        .sqrt_correction = 0.7};
  expect_split_does_not_matter<TypeParam>(adam);
  expect_split_does_not_matter<TypeParam>(adam, true);
  SGDUpdate sgd{.gradient = gradient, .lr = 0.013, .weight_decay = 0.1};
  expect_split_does_not_matter<TypeParam>(sgd);
  sgd.momentum = 0.9;
  sgd.gain = 0.7;
  expect_split_does_not_matter<TypeParam>(sgd);
  sgd.nesterov = true;
  expect_split_does_not_matter<TypeParam>(sgd);
  const AdagradUpdate adagrad{.gradient = gradient, .lr = 0.013, .eps = 1e-8, .weight_decay = 0.1};
  expect_split_does_not_matter<TypeParam>(adagrad);
  RMSpropUpdate rmsprop{
      .gradient = gradient, .lr = 0.013, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.1};
  expect_split_does_not_matter<TypeParam>(rmsprop);
  rmsprop.momentum = 0.9;
  expect_split_does_not_matter<TypeParam>(rmsprop, true);
}

TYPED_TEST(SplitTest, OnlyTheRangeIsTouched) {
  Data<TypeParam> data(false);
  const Data<TypeParam> before = data;
  apply(SGDUpdate{.lr = 0.1}, data.arrays(), {.begin = 100, .end = 107});
  for (std::int64_t i = 0; i < kSize; ++i) {
    const bool inside = i >= 100 && i < 107;
    EXPECT_EQ(data.values[i] != before.values[i], inside) << i;
    EXPECT_EQ(data.grads[i], inside ? TypeParam(0) : before.grads[i]) << i;
  }
}

TEST(SumOfSquares, IsRightForEverySize) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<float> data(kSumBlock);
  for (float& x : data) x = static_cast<float>(normal(random));
  double exact = 0.0;
  for (std::int64_t size = 0; size < kSumBlock; ++size) {
    EXPECT_NEAR(sum_of_squares(data.data(), size), exact, 1e-12 * (exact + 1.0));
    exact += static_cast<double>(data[size]) * data[size];
  }
}

}  // namespace
}  // namespace lockstep::optim::kernels
