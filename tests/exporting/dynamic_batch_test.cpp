#include "lockstep/exporting/dynamic_batch.h"

#include <gmock/gmock.h>

#include "lockstep/exporting/trace.h"
#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

void expect_dynamic(const testing::FunctionImpl::Function& function) {
  testing::export_both(Model(testing::Function(function)), {{"x", torch::randn({2, 6})}});
}

TEST(DynamicBatch, SizesThatAMultipleOfTheBatchHas) {
  expect_dynamic([](const torch::Tensor& x) { return x.view({x.size(0) * 2, 3}); });
  expect_dynamic([](const torch::Tensor& x) {
    return x.view({2, x.size(0), 3}).permute({1, 0, 2});
  });
  expect_dynamic([](const torch::Tensor& x) {
    return torch::cat({x, torch::zeros({x.size(0), 2}, x.options())}, 1);
  });
}

TEST(DynamicBatch, SizesWithAnOffset) {
  expect_dynamic([](const torch::Tensor& x) {
    return torch::cat({x, x}).narrow(0, x.size(0) - 1, x.size(0));
  });
  expect_dynamic([](const torch::Tensor& x) { return x.t().expand({2 * x.size(0) + 1, 6, -1}); });
}

TEST(DynamicBatch, TypesLeaveSizesOut) {
  const Model model = testing::Function([](const torch::Tensor& x) { return x.t(); });
  const Trace traced = trace(model, {{"x", torch::randn({2, 6})}});
  const auto type = traced.graph->outputs()[0]->type()->expect<c10::TensorType>();
  EXPECT_EQ(type->sizes()[0], c10::optional<std::int64_t>(6));
  EXPECT_EQ(type->sizes()[1], c10::nullopt);
}

TEST(DynamicBatch, WhatAFileCannotExpressIsRefused) {
  const auto message = [](const testing::FunctionImpl::Function& function) {
    return error_of([&] {
      trace(Model(testing::Function(function)), {{"x", torch::randn({2, 6})}});
    });
  };
  EXPECT_THAT(message([](const torch::Tensor& x) { return x.size(0) > 2 ? x.relu() : x.tanh(); }),
              AllOf(HasSubstr("size of the batch"), HasSubstr("--no-dynamic-batch")));
  EXPECT_THAT(message([](const torch::Tensor& x) { return x * (1.0 / x.size(0)); }),
              HasSubstr("not an integer"));
  EXPECT_THAT(
      message([](const torch::Tensor& x) { return x.size(0) > 2 ? x.relu().exp() : x.relu(); }),
      HasSubstr("more operations"));
}

TEST(DynamicBatch, AFixedSizeMayDependOnIt) {
  const TemporaryDirectory folder;
  const Model model =
      testing::Function([](const torch::Tensor& x) { return x * (1.0 / x.size(0)); });
  const Exported exported = to_torchscript(model, {{"x", torch::randn({3, 6})}},
                                           folder / "model.pt", {.dynamic_batch = false});
  EXPECT_EQ(exported.checked_sizes, std::vector<std::int64_t>{3});
}

}  // namespace
}  // namespace lockstep::exporting
