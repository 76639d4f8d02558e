#include "lockstep/data/gather.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {
namespace {

const std::vector<std::int64_t> kIndices = {5, 0, 9, 9, 3, 1, 7};

torch::Tensor picked(const torch::Tensor& rows) {
  return rows.index_select(0, torch::tensor(kIndices, torch::kInt64));
}

std::int64_t count() {
  return static_cast<std::int64_t>(kIndices.size());
}

class GatherCopy : public testing::TestWithParam<std::int64_t> {};

TEST_P(GatherCopy, IsIndexSelectForEveryWidthOfRow) {
  for (const auto type : {torch::kUInt8, torch::kInt16, torch::kFloat32, torch::kFloat64}) {
    const torch::Tensor rows = torch::randint(0, 100, {10, GetParam()}).to(type);
    torch::Tensor out = torch::empty({count(), GetParam()}, type);
    gather_copy(rows, kIndices, out);
    EXPECT_TRUE(torch::equal(out, picked(rows)));
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, GatherCopy, testing::Values(0, 1, 2, 3, 8, 1000));

// Files are mapped at any address.
TEST_P(GatherCopy, TakesRowsAtAnyAddress) {
  const torch::Tensor rows = torch::rand({10, GetParam()});
  const torch::Tensor memory =
      torch::zeros({static_cast<std::int64_t>(rows.nbytes()) + 1}, torch::kUInt8);
  char* const begin = static_cast<char*>(memory.data_ptr()) + 1;
  if (rows.nbytes() > 0) std::memcpy(begin, rows.data_ptr(), rows.nbytes());
  const torch::Tensor shifted = torch::from_blob(begin, rows.sizes(), torch::kFloat32);
  torch::Tensor out = torch::empty({count(), GetParam()});
  gather_copy(shifted, kIndices, out);
  EXPECT_TRUE(torch::equal(out, picked(rows)));
  out = torch::empty({count(), GetParam()});
  EXPECT_TRUE(gather_copy_finite(shifted, kIndices, out));
  EXPECT_TRUE(torch::equal(out, picked(rows)));
}

TEST_P(GatherCopy, FindsValuesThatAreNotFinite) {
  const std::int64_t width = GetParam();
  if (width == 0) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const auto type : {torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
                          torch::kComplexFloat, torch::kComplexDouble}) {
    torch::Tensor rows = torch::randn({10, width}).to(type);
    torch::Tensor out = torch::empty({count(), width}, type);
    EXPECT_TRUE(gather_copy_finite(rows, kIndices, out)) << type;
    EXPECT_TRUE(torch::equal(out, picked(rows)));
    for (const double value : {kInfinity, -kInfinity, std::nan("")}) {
      for (const std::int64_t column : {std::int64_t{0}, width - 1}) {
        torch::Tensor bad = rows.clone();
        bad[3][column] = value;
        EXPECT_FALSE(gather_copy_finite(bad, kIndices, out)) << type << value << column;
        bad[3][column] = 0;
        bad[2][column] = value;
        EXPECT_TRUE(gather_copy_finite(bad, kIndices, out)) << "row 2 is not gathered";
      }
    }
  }
}

TEST(GatherCopyFinite, TakesTheLargestAndSmallestNumbers) {
  const std::vector<std::int64_t> all = {0, 1};
  const auto expect_finite = [&](const torch::Tensor& rows) {
    torch::Tensor out = torch::empty_like(rows);
    EXPECT_TRUE(gather_copy_finite(rows, all, out)) << rows;
  };
  using Floats = std::numeric_limits<float>;
  using Doubles = std::numeric_limits<double>;
  expect_finite(
      torch::tensor({Floats::max(), -Floats::max(), Floats::denorm_min(), -0.0F}).view({2, 2}));
  expect_finite(
      torch::tensor({Doubles::max(), -Doubles::max(), Doubles::denorm_min(), -0.0}, torch::kFloat64)
          .view({2, 2}));
  expect_finite(torch::tensor({65504.F, -65504.F}).to(torch::kFloat16));
  expect_finite(torch::full({2, 3}, -1, torch::kInt64));
}

TEST(GatherBytesToInt64, KeepsTheValues) {
  const torch::Tensor rows = torch::randint(0, 256, {10, 5}, torch::kUInt8);
  torch::Tensor out = torch::empty({count(), 5}, torch::kInt64);
  gather_bytes_to_int64(rows, kIndices, out);
  EXPECT_TRUE(torch::equal(out, picked(rows).to(torch::kInt64)));
}

// The number of channels of the image, and the number of means and stds (0: not normalised).
struct Pixels {
  std::int64_t channels;
  std::size_t constants;
};

class GatherBytesToFloat : public testing::TestWithParam<Pixels> {};

TEST_P(GatherBytesToFloat, HasTheBitsOfPyTorch) {
  const auto [channels, constants] = GetParam();
  const torch::Tensor rows = torch::randint(0, 256, {10, 7, 37, channels}, torch::kUInt8);
  const std::vector<float> mean = {0.4914F, 0.1307F, 0.4465F, 0.2F};
  const std::vector<float> std = {0.2470F, 0.3081F, 0.2616F, 0.7F};
  PixelMap map{.channels = channels,
               .mean = {mean.begin(), mean.begin() + static_cast<std::ptrdiff_t>(constants)},
               .std = {std.begin(), std.begin() + static_cast<std::ptrdiff_t>(constants)}};
  torch::Tensor out = torch::empty({count(), channels, 7, 37});
  gather_bytes_to_float(rows, kIndices, map, out);

  torch::Tensor expected = picked(rows).permute({0, 3, 1, 2}).to(torch::kFloat32).div(255);
  if (constants > 0) {
    expected = expected.sub(torch::tensor(map.mean).view({-1, 1, 1}))
                   .div(torch::tensor(map.std).view({-1, 1, 1}));
  }
  EXPECT_TRUE(torch::equal(out, expected));
}

INSTANTIATE_TEST_SUITE_P(Images, GatherBytesToFloat,
                         testing::Values(Pixels{1, 0}, Pixels{1, 1}, Pixels{3, 0}, Pixels{3, 1},
                                         Pixels{3, 3}, Pixels{4, 4}));

TEST(Gather, OfManyBytesIsTheSame) {
  const torch::Tensor rows = torch::randint(0, 256, {10, 600, 600, 1}, torch::kUInt8);
  torch::Tensor out = torch::empty({count(), 1, 600, 600});
  gather_bytes_to_float(rows, kIndices, {}, out);
  EXPECT_TRUE(torch::equal(out, ToTensor().apply(picked(rows))));
}

TEST(CheckIndices, NamesTheFirstBadOne) {
  EXPECT_NO_THROW(check_indices(kIndices, 10));
  EXPECT_THROW(check_indices(kIndices, 9), DataError);
  EXPECT_NO_THROW(check_indices({}, 0));
}

TEST(ReuseOrAllocate, TakesOnlyWhatFits) {
  const Batch old{{"x", torch::zeros({2, 3})}};
  const auto reused = [&](const char* key, torch::IntArrayRef shape, torch::ScalarType type) {
    return reuse_or_allocate(old, key, shape, type).is_same(old["x"]);
  };
  EXPECT_TRUE(reused("x", {2, 3}, torch::kFloat32));
  EXPECT_FALSE(reused("x", {3, 2}, torch::kFloat32));
  EXPECT_FALSE(reused("x", {2, 3}, torch::kFloat64));
  EXPECT_FALSE(reused("y", {2, 3}, torch::kFloat32));
  Batch listed;
  listed.set("x", std::vector<torch::Tensor>{torch::zeros({2, 3})});
  EXPECT_EQ(reuse_or_allocate(listed, "x", {2, 3}, torch::kFloat32).dim(), 2) << "not the list's";
  const Batch strided{{"x", torch::zeros({3, 2}).t()}};
  EXPECT_TRUE(reuse_or_allocate(strided, "x", {2, 3}, torch::kFloat32).is_contiguous());
}

}  // namespace
}  // namespace lockstep::data
