#include "lockstep/exporting/trace.h"

#include <gmock/gmock.h>

#include "lockstep/compute/checkpointed.h"
#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> operations(const Trace& traced) {
  std::vector<std::string> kinds;
  for (const torch::jit::Node* const node : traced.graph->nodes()) {
    const std::string kind = node->kind().toQualString();
    if (kind.starts_with("aten::")) kinds.push_back(kind);
  }
  return kinds;
}

// LibTorch would not see what a planned Sequential computes.
TEST(Trace, ASequentialIsItsLayers) {
  const Model model = torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::ReLU(),
                                            checkpointed(torch::nn::Linear(3, 2)));
  const Trace traced = trace(model, {{"x", torch::randn({2, 4})}});
  // A linear layer is one operation or two, as LibTorch decides.
  const auto is_product = ::testing::AnyOf("aten::linear", "aten::addmm");
  EXPECT_THAT(operations(traced), AllOf(Contains(is_product).Times(2), Contains("aten::relu")));
  EXPECT_THAT(traced.outputs, ElementsAre("output"));
  EXPECT_TRUE(model.is_training());
}

TEST(Trace, WeightsHaveTheirNames) {
  const Model model = torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  const Trace traced = trace(model, {{"x", torch::randn({2, 4})}});
  std::vector<std::string> names;
  for (const auto& item : traced.weights.named_parameters()) names.push_back(item.name);
  EXPECT_THAT(names, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias"));
  bool is_found = false;
  for (const torch::jit::Node* const node : traced.graph->nodes()) {
    for (const torch::jit::Value* const input : node->inputs()) {
      if (weight_name(*input) != "0.weight") continue;
      is_found = true;
      EXPECT_EQ(layer_of(*node), "layer '0'");
    }
  }
  EXPECT_TRUE(is_found);
}

TEST(Trace, OperationsInPlaceMayBeRecordedAsOthers) {
  const Model model = testing::Function([](const torch::Tensor& x) { return (x + 1).relu_(); });
  const Batch inputs = {{"x", torch::randn({2, 4})}};
  EXPECT_THAT(operations(trace(model, inputs)), Contains("aten::relu_"));
  EXPECT_THAT(operations(trace(model, inputs, {.out_of_place = true})), Contains("aten::relu"));
}

TEST(Trace, WhatCannotBeTracedIsAConfigError) {
  const torch::Tensor fixed = torch::ones({2});
  const Model model = testing::Function([&](const torch::Tensor&) { return fixed; });
  EXPECT_THAT(testing::error_of([&] {
                trace(model, {{"x", torch::randn({2, 4})}});
              }),
              HasSubstr("export"));
}

}  // namespace
}  // namespace lockstep::exporting
