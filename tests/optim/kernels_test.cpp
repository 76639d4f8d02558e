#include "lockstep/optim/kernels.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/optim/each_update.h"

namespace lockstep::optim::kernels {
namespace {

constexpr std::int64_t kSize = 1003;

// Random values and gradients, with state that is not negative, as squares are.
template <typename T>
struct Data {
  explicit Data(std::size_t num_states) : num_states(num_states) {
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
    Arrays<T> all{.values = values.data(), .grads = grads.data()};
    for (std::size_t i = 0; i < num_states; ++i) all.state[i] = state[i].data();
    return all;
  }

  bool operator==(const Data&) const = default;

  std::size_t num_states;
  std::vector<T> values = std::vector<T>(kSize);
  std::vector<T> grads = std::vector<T>(kSize);
  std::vector<std::vector<T>> state = std::vector<std::vector<T>>(3, std::vector<T>(kSize));
};

template <typename T, typename Update>
void expect_split_does_not_matter(const Update& update, std::size_t num_states) {
  Data<T> whole(num_states);
  apply(update, whole.arrays(), {.begin = 0, .end = kSize});
  EXPECT_FALSE(whole == Data<T>(num_states));
  Data<T> split(num_states);
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
  for_each_update({.scale = 0.3}, [](const auto& update, std::size_t num_states) {
    expect_split_does_not_matter<TypeParam>(update, num_states);
  });
}

// On a GPU the factor of the step size stays in the memory of the GPU.
TYPED_TEST(SplitTest, LambsStepSizeHasAFactor) {
  LambUpdate update{.eps = 1e-4, .correction1 = 0.5, .correction2 = 0.7, .step_size = 0.1};
  Data<TypeParam> data(2);
  const double factor = 0.25;
  Arrays<TypeParam> arrays = data.arrays();
  arrays.factor = &factor;
  apply(update, arrays, {.begin = 0, .end = kSize});
  Data<TypeParam> expected(2);
  update.step_size *= factor;
  apply(update, expected.arrays(), {.begin = 0, .end = kSize});
  EXPECT_TRUE(data == expected);
}

TYPED_TEST(SplitTest, OnlyTheRangeIsTouched) {
  Data<TypeParam> data(2);
  const Data<TypeParam> before = data;
  apply(SGDUpdate{.lr = 0.1}, data.arrays(), {.begin = 100, .end = 107});
  for (std::int64_t i = 0; i < kSize; ++i) {
    const bool inside = i >= 100 && i < 107;
    EXPECT_EQ(data.values[i] != before.values[i], inside) << i;
    EXPECT_EQ(data.grads[i], inside ? TypeParam(0) : before.grads[i]) << i;
  }
}

// Of the first elements, after a step of the moments.
TYPED_TEST(SplitTest, LambsSquaresAreThoseOfItsSteps) {
  Data<TypeParam> data(2);
  const Arrays<TypeParam> arrays = data.arrays();
  apply(LambMoments{.gradient = {.scale = 0.3}, .beta1 = 0.9, .beta2 = 0.99}, arrays,
        {.begin = 0, .end = kSize});
  LambUpdate update{
      .eps = 1e-6, .weight_decay = 0.1, .correction1 = 0.5, .correction2 = 0.7, .step_size = 1};
  std::vector<LambSquares> sums;
  for (const std::int64_t size : {0, 1, 7, 8, 9, 640, 1003}) {
    sums.push_back(lamb_squares(update, arrays, {.begin = 0, .end = size}));
  }
  const std::vector<TypeParam> before = data.values;
  apply(update, arrays, {.begin = 0, .end = kSize});
  double values = 0;
  double updates = 0;
  std::size_t next = 0;
  for (std::int64_t i = 0; i <= kSize; ++i) {
    for (const std::int64_t size : {0, 1, 7, 8, 9, 640, 1003}) {
      if (i != size) continue;
      EXPECT_NEAR(sums[next].values, values, 1e-6 * (values + 1)) << size;
      EXPECT_NEAR(sums[next++].updates, updates, 1e-5 * (updates + 1)) << size;
    }
    if (i == kSize) break;
    const double moved = static_cast<double>(before[i]) - static_cast<double>(data.values[i]);
    values += static_cast<double>(before[i]) * before[i];
    updates += moved * moved;
  }
  EXPECT_EQ(next, sums.size());
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
