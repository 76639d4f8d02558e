#include "lockstep/engine/gradient_hook.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(GradientHook, IsCalledOncePerBackwardWithTheCompleteGradient) {
  auto parameter = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  double seen = 0;
  GradientHook hook;
  const auto call = [&] {
    ++calls;
    seen = parameter.grad()[0].item<double>();
  };
  hook.attach(parameter, call);
  hook.attach(parameter, call);  // it has the hook already
  (parameter * 2 + parameter * 3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, 5.0);
  parameter.sum().backward();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(seen, 6.0);
}

TEST(GradientHook, IsRemovedWhenItIsDestroyed) {
  auto parameter = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  const auto loss = [&] {
    GradientHook hook;
    hook.attach(parameter, [&] { ++calls; });
    GradientHook moved = std::move(hook);
    auto result = parameter.sum();
    result.backward({}, /*retain_graph=*/true);
    return result;
  }();
  EXPECT_EQ(calls, 1);
  loss.backward();
  EXPECT_EQ(calls, 1);
}

TEST(GradientHook, IsAttachedToAParameterThatIsUnfrozen) {
  auto parameter = torch::ones({2});
  int calls = 0;
  GradientHook hook;
  hook.attach(parameter, [&] { ++calls; });
  parameter.requires_grad_(true);
  hook.attach(parameter, [&] { ++calls; });
  parameter.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(GradientHook, FollowsAParameterThatGetsAnotherType) {
  auto parameter = torch::ones({2}, torch::requires_grad());
  int calls = 0;
  GradientHook hook;
  hook.attach(parameter, [&] { ++calls; });
  parameter.set_data(parameter.detach().to(torch::kFloat64));
  hook.attach(parameter, [&] { ++calls; });
  parameter.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(GradientHook, PassesAnExceptionToTheCallerOfBackward) {
  auto parameter = torch::ones({2}, torch::requires_grad());
  GradientHook hook;
  hook.attach(parameter, [] { throw std::out_of_range("from the hook"); });
  const auto loss = parameter.sum();
  EXPECT_THROW(loss.backward(), std::out_of_range);
}

}  // namespace
}  // namespace lockstep
