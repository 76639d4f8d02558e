#include "lockstep/exporting/onnx_translation.h"

#include <gmock/gmock.h>

#include "tests/exporting/support.h"

namespace lockstep::exporting {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> operators(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const OnnxNode& node : model.nodes) names.push_back(node.op);
  return names;
}

OnnxModel translated(const testing::FunctionImpl::Function& function, std::int64_t opset = 17) {
  const Model model = testing::Function(function);
  return Translation(trace(model, {{"x", torch::randn({2, 3})}}, {.out_of_place = true}), opset)
      .run();
}

TEST(OnnxTranslation, ConstantsAreComputedNow) {
  const OnnxModel model = translated([](const torch::Tensor& x) {
    return x + torch::arange(3).to(torch::kFloat32).exp().unsqueeze(0);
  });
  EXPECT_THAT(operators(model), ElementsAre("Add", "Identity"));
  EXPECT_TRUE(
      torch::allclose(model.initializers.at(0).second, torch::arange(3).exp().unsqueeze(0)));
}

TEST(OnnxTranslation, EqualSmallConstantsAreWrittenOnce) {
  const OnnxModel model = translated([](const torch::Tensor& x) { return (x * 2).relu() * 2; });
  EXPECT_EQ(model.initializers.size(), 1U);
}

TEST(OnnxTranslation, AxesAreAttributesOrInputs) {
  const auto mean = [](const torch::Tensor& x) { return x.mean(1); };
  EXPECT_EQ(translated(mean, 17).nodes[0].attributes.count("axes"), 1U);
  EXPECT_EQ(translated(mean, 18).nodes[0].attributes.count("axes"), 0U);
  EXPECT_EQ(translated(mean, 18).nodes[0].inputs.size(), 2U);
}

TEST(OnnxTranslation, WhatCannotBeTranslatedIsNamed) {
  EXPECT_THAT(
      testing::error_of([] { translated([](const torch::Tensor& x) { return x.lgamma(); }); }),
      AllOf(HasSubstr("aten::lgamma"), HasSubstr("before the first layer with weights")));
}

}  // namespace
}  // namespace lockstep::exporting
