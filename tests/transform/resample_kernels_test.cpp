#include "lockstep/transform/resample_kernels.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

// Two outputs of rows with four pixels: the first pixel, and the mean of the last three, with a
// negative weight on one of them in the third output.
AxisWeights<std::int32_t> three_outputs() {
  constexpr std::int32_t kOne = 1 << kWeightBits;
  return {.inputs = {{.first = 0, .count = 1}, {.first = 1, .count = 2}, {.first = 1, .count = 3}},
          .weights = {kOne, 0, 0, kOne / 2, kOne / 2, 0, -kOne, kOne, kOne},
          .room = 3};
}

std::uint8_t expected(const std::uint8_t* row, std::int64_t output, std::int64_t stride) {
  const auto at = [&](std::int64_t i) { return static_cast<int>(row[i * stride]); };
  if (output == 0) return static_cast<std::uint8_t>(at(0));
  if (output == 1) return static_cast<std::uint8_t>((at(1) + at(2) + 1) / 2);
  return static_cast<std::uint8_t>(std::clamp(at(2) + at(3) - at(1), 0, 255));
}

TEST(ResampleKernels, RowsOfAnyNumberOfChannels) {
  for (const std::int64_t channels : {1, 2, 3, 4, 5}) {
    for (const std::int64_t rows : {1, 2, 5}) {
      const std::int64_t stride = 4 * channels;
      std::vector<std::uint8_t> from(static_cast<std::size_t>(rows * stride));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * i * 7);
      std::vector<std::uint8_t> last(from.end() - stride, from.end());
      last.insert(last.end(), 2, 200);
      std::vector<std::uint8_t> to(static_cast<std::size_t>(rows * (3 * channels + 1)), 77);
      resample_rows({.from = from.data(),
                     .from_stride = stride,
                     .last = last.data(),
                     .rows = rows,
                     .channels = channels,
                     .to = to.data(),
                     .to_stride = 3 * channels + 1},
                    three_outputs());
      for (std::int64_t y = 0; y < rows; ++y) {
        for (std::int64_t x = 0; x < 3; ++x) {
          for (std::int64_t c = 0; c < channels; ++c) {
            ASSERT_EQ(to[static_cast<std::size_t>(y * (3 * channels + 1) + x * channels + c)],
                      expected(from.data() + y * stride + c, x, channels))
                << channels << " channels, row " << y << ", output " << x;
          }
        }
      }
    }
  }
}

TEST(ResampleKernels, ColumnsOfAnyWidth) {
  for (const std::int64_t width : {1, 7, 8, 31, 32, 33, 100}) {
    std::vector<std::uint8_t> from(static_cast<std::size_t>(4 * width));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * i * 5);
    std::vector<std::uint8_t> to(static_cast<std::size_t>(3 * width));
    resample_columns({.from = from.data(),
                      .from_stride = width,
                      .width = width,
                      .to = to.data(),
                      .to_stride = width},
                     three_outputs());
    for (std::int64_t y = 0; y < 3; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        ASSERT_EQ(to[static_cast<std::size_t>(y * width + x)], expected(from.data() + x, y, width))
            << "width " << width << ", output " << y << ", column " << x;
      }
    }
  }
}

TEST(ResampleKernels, Floats) {
  const AxisWeights<float> weights{.inputs = {{.first = 0, .count = 2}, {.first = 2, .count = 1}},
                                   .weights = {0.25F, 0.75F, -1.0F, 9.0F},
                                   .room = 2};
  const std::vector<float> from = {4, 8, 1, 0, 16, 2};
  std::vector<float> to(4);
  resample_rows({.from = from.data(), .from_stride = 3, .rows = 2, .to = to.data(), .to_stride = 2},
                weights);
  EXPECT_EQ(to, (std::vector<float>{7, -1, 12, -2}));
  const std::vector<float> columns = {4, 0, 8, 16, 1, 2};
  resample_columns(
      {.from = columns.data(), .from_stride = 2, .width = 2, .to = to.data(), .to_stride = 2},
      weights);
  EXPECT_EQ(to, (std::vector<float>{7, 12, -1, -2}));
}

}  // namespace
}  // namespace lockstep::data
