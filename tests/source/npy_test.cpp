#include "lockstep/source/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kOfNumPy = std::filesystem::path(LOCKSTEP_GOLDENS) / "npy";

// Written in two parts, if there are two rows.
std::string written(const torch::Tensor& array) {
  const TemporaryDirectory folder;
  NpyFile file(folder / "a.npy", array.scalar_type(), array.sizes().vec());
  const std::int64_t first = array.size(0) / 2;
  file.append(array.narrow(0, 0, first));
  file.append(array.narrow(0, first, array.size(0) - first));
  file.finish();
  return read_file(folder / "a.npy");
}

TEST(Npy, HasTheBytesOfNumPy) {
  EXPECT_EQ(written(torch::arange(12, torch::kFloat32).reshape({3, 4}) / 8),
            read_file(kOfNumPy / "float.npy"));
  EXPECT_EQ(written(torch::arange(5) - 2), read_file(kOfNumPy / "long.npy"));
  EXPECT_EQ(written(torch::tensor({1, 0}).to(torch::kBool).reshape({2, 1})),
            read_file(kOfNumPy / "bool.npy"));
  EXPECT_EQ(written(torch::arange(24, torch::kFloat32).to(torch::kFloat16).reshape({2, 3, 1, 4})),
            read_file(kOfNumPy / "half.npy"));
  EXPECT_EQ(written(torch::zeros({0, 3}, torch::kFloat64)), read_file(kOfNumPy / "empty.npy"));
}

TEST(Npy, RowsOfAViewAreInOrder) {
  EXPECT_EQ(written((torch::arange(12, torch::kFloat32).reshape({3, 4}) / 8).t().contiguous().t()),
            read_file(kOfNumPy / "float.npy"));
}

TEST(Npy, NumbersBeginAtAMultipleOf64Bytes) {
  std::vector<std::int64_t> shape = {7};
  for (int i = 0; i < 40; ++i) {
    const std::string header = npy_header(torch::kFloat32, shape);
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_EQ(header.back(), '\n');
    const auto length = static_cast<unsigned char>(header[8]) +
                        256 * static_cast<std::size_t>(static_cast<unsigned char>(header[9]));
    EXPECT_EQ(10 + length, header.size());
    shape.push_back(i);
  }
  EXPECT_THAT(npy_header(torch::kFloat64, {}), HasSubstr("'shape': (), }"));
}

TEST(Npy, RefusesOtherRowsAndIsNotThereUnlessItIsComplete) {
  const TemporaryDirectory folder;
  {
    NpyFile file(folder / "a.npy", torch::kFloat32, {3, 2});
    EXPECT_THAT(error_text<DataError>([&] {
                  file.append(torch::zeros({1, 3}));
                }),
                HasSubstr("a.npy: expected rows of Float [1, 2], got Float [1, 3]"));
    EXPECT_THROW(file.append(torch::zeros({1, 2}, torch::kFloat64)), DataError);
    EXPECT_THROW(file.append(torch::zeros({})), DataError);
    EXPECT_THAT(error_text<DataError>([&] {
                  file.append(torch::zeros({4, 2}));
                }),
                HasSubstr("expected 3 rows, got 4 or more"));
    file.append(torch::zeros({2, 2}));
    EXPECT_THAT(error_text<DataError>([&] { file.finish(); }), HasSubstr("expected 3 rows, got 2"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_text<DataError>([] { npy_header(torch::kBFloat16, {1}); }),
              HasSubstr("BFloat16"));
}

}  // namespace
}  // namespace lockstep::data
