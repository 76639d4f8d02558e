#include "lockstep/train/late_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"
#include "tests/train/late_copies.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LateLosses, WithoutCopiesATensorIsReadAtOnce) {
  LateLosses losses(nullptr);
  losses.begin(torch::tensor(2.5));
  EXPECT_EQ(losses.value_of(torch::tensor(1.5)), 1.5);
}

TEST(LateLosses, ACopyIsWaitedForWhenItsValueIsNeeded) {
  LateCopies copies;
  LateLosses losses(&copies);
  const torch::Tensor loss = torch::tensor(2.5).requires_grad_();
  losses.begin(loss);
  losses.begin(torch::tensor(7.0));
  EXPECT_THAT(copies.events, ElementsAre("read", "read"));
  EXPECT_EQ(losses.value_of(loss), 2.5);
  EXPECT_EQ(losses.value_of(loss.detach()), 2.5);
  EXPECT_THAT(copies.events, ElementsAre("read", "read", "wait", "wait"));
  losses.clear();
  copies.events.clear();
  EXPECT_EQ(losses.value_of(loss), 2.5);
  EXPECT_THAT(copies.events, IsEmpty());
}

TEST(LateLosses, ATensorThatWasChangedIsReadAgain) {
  LateCopies copies;
  LateLosses losses(&copies);
  torch::Tensor loss = torch::tensor(2.5);
  losses.begin(loss);
  loss.mul_(2);
  EXPECT_EQ(losses.value_of(loss), 5.0);
  EXPECT_EQ(losses.value_of(torch::tensor(9.0)), 9.0) << "another tensor";
}

TEST(LateLosses, AnErrorOfTheDeviceIsThrown) {
  LateCopies copies;
  copies.error = "the device is gone";
  LateLosses losses(&copies);
  const torch::Tensor loss = torch::tensor(2.5);
  losses.begin(loss);
  EXPECT_EQ(toy::error_of([&] { losses.value_of(loss); }), "the device is gone");
}

TEST(LateLosses, ATensorOfInferenceModeIsRead) {
  LateCopies copies;
  LateLosses losses(&copies);
  const c10::InferenceMode inference;
  const torch::Tensor loss = torch::tensor(2.5);
  losses.begin(loss);
  EXPECT_THAT(copies.events, IsEmpty());
  EXPECT_EQ(losses.value_of(loss), 2.5);
  EXPECT_EQ(losses.value_of(torch::tensor(1.5)), 1.5);
}

}  // namespace
}  // namespace lockstep
