#include "lockstep/train/weight_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The names of "backbone.conv.weight", "backbone.norm.1.bias" and "fc.weight".
std::vector<std::string> names_with(const WeightsOptions& options) {
  const StateDict file = {{"backbone.conv.weight", torch::zeros(1)},
                          {"backbone.norm.1.bias", torch::zeros(1)},
                          {"fc.weight", torch::zeros(1)}};
  std::vector<std::string> names;
  for (const FileWeight& weight : renamed_weights(file, {"a.pth", options})) {
    names.push_back(weight.name);
  }
  return names;
}

TEST(WeightNames, PrefixesAreRemovedAndAdded) {
  EXPECT_THAT(names_with({.remove_prefix = "backbone."}),
              ElementsAre("conv.weight", "norm.1.bias", "fc.weight"));
  EXPECT_THAT(names_with({.add_prefix = "net."}),
              ElementsAre("net.backbone.conv.weight", "net.backbone.norm.1.bias", "net.fc.weight"));
}

TEST(WeightNames, APatternGivesNewNames) {
  EXPECT_THAT(names_with({.rename = {{"backbone.*", "body.*"}, {"fc.*", "head.*"}}}),
              ElementsAre("body.conv.weight", "body.norm.1.bias", "head.weight"));
  EXPECT_THAT(names_with({.rename = {{"*.norm.*.bias", "*.ln*.b"}}}),
              ElementsAre("backbone.conv.weight", "backbone.ln1.b", "fc.weight"));
  EXPECT_THAT(names_with({.rename = {{"fc.weight", "last"}, {"fc.*", "head.*"}}}),
              ElementsAre("backbone.conv.weight", "backbone.norm.1.bias", "last"))
      << "the first one counts";
}

TEST(WeightNames, AreChangedInTheOrderOfTheOptions) {
  EXPECT_THAT(
      names_with(
          {.remove_prefix = "backbone.", .rename = {{"conv.*", "stem.*"}}, .add_prefix = "net."}),
      ElementsAre("net.stem.weight", "net.norm.1.bias", "net.fc.weight"));
}

TEST(WeightNames, AMatrixThatIsEqualToAnotherIsTheSameWeight) {
  const torch::Tensor matrix = torch::arange(6, torch::kFloat32).view({2, 3});
  EXPECT_TRUE(is_same_weight(matrix, matrix.clone()));
  EXPECT_TRUE(is_same_weight(matrix.to(torch::kHalf), matrix.to(torch::kHalf)));
  EXPECT_FALSE(is_same_weight(matrix, matrix + 1));
  EXPECT_FALSE(is_same_weight(matrix, matrix.to(torch::kFloat64)));
  EXPECT_FALSE(is_same_weight(matrix, matrix.view({3, 2})));
  for (const torch::Tensor& common :
       {matrix.flatten(), torch::zeros({2, 3}), torch::ones({2, 3}), torch::zeros({0, 3})}) {
    EXPECT_FALSE(is_same_weight(common, common.clone())) << "may be equal by chance";
  }
}

TEST(WeightNames, WhatFitsNothingIsNamed) {
  const auto error = [](const WeightsOptions& options) {
    return toy::error_of([&] { names_with(options); });
  };
  EXPECT_THAT(error({.remove_prefix = "encoder."}),
              AllOf(HasSubstr("no weight of a.pth begins with 'encoder.'"),
                    HasSubstr("backbone.conv.weight")));
  EXPECT_THAT(error({.rename = {{"fc.wieght", "head"}}}),
              HasSubstr("'fc.wieght' matches no weight of a.pth; did you mean 'fc.weight'?"));
  EXPECT_THAT(error({.rename = {{"backbone.*", "same"}}}),
              HasSubstr("'backbone.conv.weight' and 'backbone.norm.1.bias' would both be called"));
}

}  // namespace
}  // namespace lockstep
