#include "lockstep/compute/autograd_probe.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

TEST(AutogradProbe, SaysWhetherAGradientIsThere) {
  EXPECT_TRUE(autograd_works());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(autograd_works());
}

}  // namespace
}  // namespace lockstep::compute
