#include "lockstep/dist/gradient_message.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dist/workers.h"

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::Tensor with_grad(double value, torch::ScalarType type = torch::kFloat32) {
  auto parameter = torch::zeros({2, 3}, torch::requires_grad().dtype(type));
  parameter.mutable_grad() = torch::full({2, 3}, value, type);
  return parameter;
}

TEST(GradientMessage, BecomesTheWeightedMean) {
  for (const auto type : {torch::kFloat16, torch::kFloat32, torch::kFloat64}) {
    const auto first = with_grad(1, type);
    const auto second = with_grad(5, type);
    GradientMessage here({first});
    GradientMessage there({second});
    here.write_gradient(0, {.weight = 3});
    here.write_head({.weight = 3});
    there.write_gradient(0, {.weight = 1});
    there.write_head({.weight = 1});
    here.array().add_(there.array());
    here.read_means();
    EXPECT_TRUE(first.grad().equal(torch::full({2, 3}, 2.0, type)));
    EXPECT_EQ(first.grad().scalar_type(), type);
  }
}

TEST(GradientMessage, KeepsTheLayoutOfAGradient) {
  auto parameter = torch::zeros({2, 3}, torch::requires_grad());
  const auto values = torch::arange(6, torch::kFloat32).view({3, 2});
  parameter.mutable_grad() = values.clone().t();
  GradientMessage message({parameter});
  message.write_gradient(0, {.weight = 2});
  message.write_head({.weight = 1});
  message.read_means();
  EXPECT_TRUE(parameter.grad().equal(values.t() * 2));
}

TEST(GradientMessage, OnlyParametersWithAMarkGetTheMean) {
  const auto old = with_grad(7);
  auto none = torch::zeros({2, 3}, torch::requires_grad());
  const auto fresh = with_grad(1);
  GradientMessage message({old, none, fresh});
  message.write_gradient(0, {.weight = 2, .is_new = false});
  message.write_gradient(1, {.weight = 2});
  message.write_gradient(2, {.weight = 2});
  message.write_head({.weight = 4});
  message.read_means();
  EXPECT_TRUE(old.grad().equal(torch::full({2, 3}, 7.0F)));
  EXPECT_FALSE(none.grad().defined());
  EXPECT_TRUE(fresh.grad().equal(torch::full({2, 3}, 0.5F)));
}

TEST(GradientMessage, AGradientWithoutWeightDoesNotCount) {
  const auto endless = with_grad(std::numeric_limits<double>::infinity());
  GradientMessage message({endless});
  message.write_gradient(0, {.weight = 0});
  message.write_head({.weight = 0});
  message.read_means();  // the sum of all weights is 0: nothing is changed
  EXPECT_TRUE(endless.grad().isinf().all().item<bool>());
  message.write_head({.weight = 2});  // as if another rank had a weight
  message.read_means();
  EXPECT_TRUE(endless.grad().equal(torch::zeros({2, 3})));
}

TEST(GradientMessage, ComparesPlaces) {
  GradientMessage here({with_grad(1)});
  GradientMessage there({with_grad(1)});
  here.write_head({.place = {1, 4095, 3}});
  there.write_head({.place = {1, 4095, 3}});
  here.array().add_(there.array());
  EXPECT_TRUE(here.has_place({1, 4095, 3}, 2));
  there.write_head({.place = {1, 4094, 3}});
  here.write_head({.place = {1, 4095, 3}});
  here.array().add_(there.array());
  EXPECT_FALSE(here.has_place({1, 4095, 3}, 2));
}

TEST(GradientMessage, RefusesWhatItCannotAverage) {
  const auto complex = torch::zeros({2}, torch::kComplexFloat);
  EXPECT_THAT(error_of<ConfigError>([&] { GradientMessage::type_of(complex); }),
              AllOf(HasSubstr("ComplexFloat"), HasSubstr("[2]")));
  auto sparse = torch::zeros({2, 3}, torch::requires_grad());
  sparse.mutable_grad() = torch::ones({2, 3}).to_sparse();
  GradientMessage message({sparse});
  EXPECT_THAT(error_of<ConfigError>([&] { message.write_gradient(0, {}); }), HasSubstr("sparse"));
}

}  // namespace
}  // namespace lockstep::dist
