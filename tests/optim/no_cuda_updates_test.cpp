#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/cuda_updates.h"

namespace lockstep::optim {
namespace {

TEST(NoCudaUpdates, LeaveTheTensorsToTorch) {
  const UpdateTensors tensors{.values = torch::ones({3}), .grads = torch::ones({3}), .state = {}};
  EXPECT_FALSE(apply_on_gpu(AdamUpdate(), tensors, {0, 3}));
  EXPECT_FALSE(apply_on_gpu(SGDUpdate{.lr = 1.0}, tensors, {0, 3}));
  EXPECT_FALSE(apply_on_gpu(RMSpropUpdate(), tensors, {0, 3}));
  EXPECT_FALSE(apply_on_gpu(AdagradUpdate(), tensors, {0, 3}));
  EXPECT_TRUE(torch::equal(tensors.values, torch::ones({3})));
}

}  // namespace
}  // namespace lockstep::optim
