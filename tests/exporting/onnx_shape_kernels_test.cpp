// The numbers are examples and definitions of ONNX's specification of operators.
#include <limits>

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using testing::expect_equal;
using testing::integers;
using testing::run_node;
using testing::run_one;
using torch::Tensor;

const Tensor kTwoByFour = torch::tensor({{1, 2, 3, 4}, {5, 6, 7, 8}});

TEST(OnnxShapeKernels, Slice) {
  expect_equal(run_one("Slice", {kTwoByFour, integers({1, 0}), integers({2, 3}), integers({0, 1}),
                                 integers({1, 2})}),
               torch::tensor({{5, 7}}));
  expect_equal(
      run_one("Slice", {kTwoByFour, integers({0, 1}), integers({-1, 1000}), integers({0, 1})}),
      torch::tensor({{2, 3, 4}}));
  expect_equal(run_one("Slice", {kTwoByFour, integers({-1}),
                                 integers({std::numeric_limits<std::int64_t>::min()}),
                                 integers({1}), integers({-1})}),
               torch::tensor({{4, 3, 2, 1}, {8, 7, 6, 5}}));
}

TEST(OnnxShapeKernels, ShapesAndParts) {
  expect_equal(run_one("Reshape", {kTwoByFour, integers({0, 2, -1})}),
               kTwoByFour.reshape({2, 2, 2}));
  expect_equal(run_one("Unsqueeze", {integers({1}), integers({-1, 0})}), torch::tensor({{{1}}}));
  expect_equal(run_one("Shape", {kTwoByFour}), integers({2, 4}));
  expect_equal(
      run_one("Gather", {kTwoByFour, torch::tensor({{0, -1}})}, {{"axis", std::int64_t{1}}}),
      torch::tensor({{{1, 4}}, {{5, 8}}}));
  expect_equal(run_one("Gather", {kTwoByFour, torch::scalar_tensor(1, torch::kInt64)}),
               integers({5, 6, 7, 8}));
  expect_equal(run_one("Tile", {integers({1, 2}), integers({2})}), integers({1, 2, 1, 2}));
  expect_equal(run_one("Expand", {torch::tensor({{1}, {2}, {3}}), integers({2, 1, 2})}),
               torch::tensor({{{1, 1}, {2, 2}, {3, 3}}, {{1, 1}, {2, 2}, {3, 3}}}));
  expect_equal(run_one("ScatterElements", {integers({1, 2, 3}), integers({2}), integers({9})}),
               integers({1, 2, 9}));
}

TEST(OnnxShapeKernels, Pad) {
  const Tensor x = torch::tensor({{1.0F, 2.0F, 3.0F}});
  expect_equal(run_one("Pad", {x, integers({0, 2, 0, 1}), torch::scalar_tensor(0.5F)}),
               torch::tensor({{0.5F, 0.5F, 1.0F, 2.0F, 3.0F, 0.5F}}));
  expect_equal(run_one("Pad", {x, integers({0, 2, 0, 1})}, {{"mode", std::string("reflect")}}),
               torch::tensor({{3.0F, 2.0F, 1.0F, 2.0F, 3.0F, 2.0F}}));
  expect_equal(run_one("Pad", {x, integers({0, 2, 0, 1})}, {{"mode", std::string("edge")}}),
               torch::tensor({{1.0F, 1.0F, 1.0F, 2.0F, 3.0F, 3.0F}}));
}

TEST(OnnxShapeKernels, NewTensorsAndTypes) {
  expect_equal(run_one("ConstantOfShape", {integers({1, 2})},
                       {{"value", torch::full({1}, 3, torch::kInt64)}}),
               torch::tensor({{3, 3}}));
  const auto number = [](std::int64_t value) { return torch::scalar_tensor(value, torch::kInt64); };
  expect_equal(run_one("Range", {number(3), number(9), number(3)}), integers({3, 6}));
  expect_equal(run_one("Cast", {torch::tensor({0.0F, 2.5F})}, {{"to", std::int64_t{9}}}),
               torch::tensor({false, true}));
  EXPECT_THROW(run_one("Concat", {integers({1}), torch::ones({1})}), DataError);
}

TEST(OnnxShapeKernels, TopKTakesTheFirstOfEqualElements) {
  const auto found =
      run_node("TopK", {torch::tensor({2.0F, 3.0F, 3.0F, 1.0F}), integers({3})}, {}, 2);
  expect_equal(found[0], torch::tensor({3.0F, 3.0F, 2.0F}));
  expect_equal(found[1], integers({1, 2, 0}));
}

}  // namespace
}  // namespace lockstep::exporting
