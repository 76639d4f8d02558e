// The numbers are examples and definitions of ONNX's specification of operators.
#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using testing::expect_close;
using testing::integers;
using testing::run_one;
using torch::Tensor;

const Tensor kThree = torch::tensor({-1.0F, 0.0F, 1.0F});

TEST(OnnxNumberKernels, Activations) {
  expect_close(run_one("Elu", {kThree}, {{"alpha", 2.0}}),
               torch::tensor({-1.2642411F, 0.0F, 1.0F}));
  expect_close(run_one("Selu", {kThree}, {{"alpha", 2.0}, {"gamma", 3.0}}),
               torch::tensor({-3.79272318F, 0.0F, 3.0F}));
  expect_close(run_one("Celu", {kThree}, {{"alpha", 2.0}}),
               torch::tensor({-0.78693868F, 0.0F, 1.0F}));
  expect_close(run_one("LeakyRelu", {kThree}, {{"alpha", 0.1}}),
               torch::tensor({-0.1F, 0.0F, 1.0F}));
  expect_close(run_one("HardSigmoid", {kThree}, {{"alpha", 0.5}, {"beta", 0.6}}),
               torch::tensor({0.1F, 0.6F, 1.0F}));
  expect_close(run_one("Softplus", {kThree}),
               torch::tensor({0.31326166F, 0.69314718F, 1.31326163F}));
  expect_close(run_one("Softmax", {kThree}),
               torch::tensor({0.09003058F, 0.24472848F, 0.66524094F}));
  expect_close(run_one("LogSoftmax", {kThree}),
               torch::tensor({-2.4076061F, -1.4076061F, -0.4076061F}));
  expect_close(run_one("Clip", {kThree, {}, torch::scalar_tensor(0.5F)}),
               torch::tensor({-1.0F, 0.0F, 0.5F}));
}

TEST(OnnxNumberKernels, ProductsAndSums) {
  const Tensor a = torch::tensor({{1.0F, 2.0F}}), b = torch::tensor({{3.0F, 4.0F}, {5.0F, 6.0F}});
  expect_close(run_one("Gemm", {a, b, torch::ones({2})},
                       {{"transB", std::int64_t{1}}, {"alpha", 2.0}, {"beta", 3.0}}),
               torch::tensor({{25.0F, 37.0F}}));
  expect_close(run_one("ReduceMean", {b},
                       {{"axes", std::vector<std::int64_t>{0}}, {"keepdims", std::int64_t{0}}}),
               torch::tensor({4.0F, 5.0F}));
  expect_close(run_one("ReduceSum", {b, integers({1})}), torch::tensor({{7.0F}, {11.0F}}));
  expect_close(run_one("ReduceMax", {b}), torch::tensor({{6.0F}}));
  EXPECT_TRUE(
      torch::equal(run_one("ArgMax", {b}, {{"axis", std::int64_t{1}}}), torch::tensor({{1}, {1}})));
  EXPECT_TRUE(
      torch::equal(run_one("Div", {integers({-7, 7}), integers({2, 2})}), integers({-3, 3})));
}

// ONNX does not convert types by itself.
TEST(OnnxNumberKernels, OperandsMustHaveOneType) {
  EXPECT_THROW(run_one("Add", {torch::ones({2}), integers({1, 2})}), DataError);
  EXPECT_THROW(
      run_one("Where", {torch::ones({2}, torch::kBool), torch::ones({2}), integers({1, 2})}),
      DataError);
}

}  // namespace
}  // namespace lockstep::exporting
