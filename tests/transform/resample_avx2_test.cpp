#include "lockstep/transform/resample_avx2.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

using Weights = AxisWeights<std::int32_t>;

// A resize with up to `longest` inputs for an output, some of them with a negative weight.
Weights random_weights(std::int64_t inputs, std::int64_t outputs, std::int64_t longest,
                       std::mt19937& random) {
  Weights weights{.room = longest};
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  for (std::int64_t i = 0; i < outputs; ++i) {
    const std::int64_t count = 1 + below(std::min(longest, inputs));
    // The last output ends at the last input, as in every resize.
    const std::int64_t first = i + 1 == outputs ? inputs - count : below(inputs - count + 1);
    weights.inputs.push_back({.first = first, .count = count});
    // The sum of an output's weights is about 1 in a resize: a much larger one needs more than 32
    // bits.
    const std::int64_t most = 2 * (1 << kWeightBits) / longest;
    for (std::int64_t k = 0; k < longest; ++k) {
      weights.weights.push_back(static_cast<std::int32_t>(below(most) - most / 4));
    }
  }
  return weights;
}

std::uint8_t expected(const Weights& weights, std::int64_t output, const std::uint8_t* values,
                      std::int64_t stride) {
  const Inputs& inputs = weights.inputs[static_cast<std::size_t>(output)];
  std::int64_t sum = 1 << (kWeightBits - 1);
  for (std::int64_t k = 0; k < inputs.count; ++k) {
    sum += std::int64_t{values[(inputs.first + k) * stride]} * weights.of(output)[k];
  }
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kWeightBits, 0, 255));
}

std::vector<std::uint8_t> random_bytes(std::int64_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

TEST(PairedWeights, KeepEveryWeightAndStayInsideTheInputs) {
  std::mt19937 random(1);
  for (const std::int64_t longest : {1, 2, 3, 4, 7}) {
    const Weights weights = random_weights(9, 20, longest, random);
    PairedWeights paired;
    ASSERT_TRUE(pair_up(weights, paired));
    for (std::int64_t i = 0; i < 20; ++i) {
      const std::int64_t first = paired.first[static_cast<std::size_t>(i)];
      const Inputs& inputs = weights.inputs[static_cast<std::size_t>(i)];
      EXPECT_GE(first, 0);
      EXPECT_LE(first + 2 * paired.count, 9);
      for (std::int64_t k = 0; k < 2 * paired.count; ++k) {
        const PairedWeights::Pair& pair = paired.of(i)[k / 2];
        const std::int64_t at = first + k - inputs.first;
        const std::int32_t weight = at >= 0 && at < inputs.count ? weights.of(i)[at] : 0;
        EXPECT_EQ(pair.high[k % 2] * (1 << (kWeightBits / 2)) + pair.low[k % 2], weight);
      }
    }
  }
}

TEST(PairedWeights, NeedTwoInputsForEachPair) {
  std::mt19937 random(1);
  PairedWeights paired;
  EXPECT_FALSE(pair_up(random_weights(1, 5, 1, random), paired));
  EXPECT_TRUE(pair_up(random_weights(2, 5, 2, random), paired));
}

#if LOCKSTEP_HAS_AVX2_CLONE

TEST(ResampleAvx2, RowsAreTheSumsOfTheWeights) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "needs AVX2";
  std::mt19937 random(2);
  for (const std::int64_t channels : {3, 4}) {
    for (const std::int64_t rows : {1, 2, 5}) {
      for (const std::int64_t longest : {2, 3, 5}) {
        const std::int64_t inputs = 12;
        const std::int64_t outputs = 17;
        const Weights weights = random_weights(inputs, outputs, longest, random);
        PairedWeights paired;
        ASSERT_TRUE(pair_up(weights, paired));
        const std::int64_t stride = inputs * channels;
        const std::vector<std::uint8_t> from = random_bytes(rows * stride, random);
        std::vector<std::uint8_t> last(from.end() - stride, from.end());
        last.resize(last.size() + 2);
        const std::int64_t to_stride = outputs * channels + 1;
        std::vector<std::uint8_t> to(static_cast<std::size_t>(rows * to_stride));
        resample_rows_avx2({.from = from.data(),
                            .from_stride = stride,
                            .last = last.data(),
                            .rows = rows,
                            .channels = channels,
                            .to = to.data(),
                            .to_stride = to_stride},
                           paired);
        for (std::int64_t y = 0; y < rows; ++y) {
          for (std::int64_t i = 0; i < outputs * channels; ++i) {
            ASSERT_EQ(
                to[static_cast<std::size_t>(y * to_stride + i)],
                expected(weights, i / channels, from.data() + y * stride + i % channels, channels))
                << channels << " channels, row " << y << ", value " << i;
          }
        }
      }
    }
  }
}

TEST(ResampleAvx2, ColumnsAreTheSumsOfTheWeights) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "needs AVX2";
  std::mt19937 random(3);
  for (const std::int64_t width : {1, 31, 32, 33, 100}) {
    const Weights weights = random_weights(9, 14, 5, random);
    PairedWeights paired;
    ASSERT_TRUE(pair_up(weights, paired));
    const std::vector<std::uint8_t> from = random_bytes(9 * width, random);
    std::vector<std::uint8_t> to(static_cast<std::size_t>(14 * width));
    resample_columns_avx2({.from = from.data(),
                           .from_stride = width,
                           .width = width,
                           .to = to.data(),
                           .to_stride = width},
                          paired);
    for (std::int64_t y = 0; y < 14; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        ASSERT_EQ(to[static_cast<std::size_t>(y * width + x)],
                  expected(weights, y, from.data() + x, width))
            << "width " << width << ", output " << y << ", column " << x;
      }
    }
  }
}

#endif

}  // namespace
}  // namespace lockstep::data
