#include "lockstep/train/without_gradients.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(WithoutGradients, RestoresWhatRequiredAGradientBefore) {
  const std::vector<torch::Tensor> parameters = {torch::ones({2}).requires_grad_(),
                                                 torch::ones({2})};
  try {
    const WithoutGradients scope(parameters);
    EXPECT_FALSE(parameters[0].requires_grad());
    EXPECT_FALSE((2 * parameters[0]).requires_grad());
    throw std::runtime_error("in a batch");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(parameters[0].requires_grad());
  EXPECT_FALSE(parameters[1].requires_grad()) << "was frozen before";
}

}  // namespace
}  // namespace lockstep
