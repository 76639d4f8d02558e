// Their numbers are compared with those of the CPU in tests/gpu/updates_test.cpp.
#include "lockstep/optim/cuda_updates.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::optim {
namespace {

TEST(CudaUpdates, AreNotForTensorsOfTheCpu) {
  const UpdateTensors tensors{.values = torch::ones({3}), .grads = torch::ones({3}), .state = {}};
  EXPECT_FALSE(apply_on_gpu(SGDUpdate{.lr = 1.0}, tensors, {0, 3}));
  EXPECT_TRUE(torch::equal(tensors.values, torch::ones({3})));
}

}  // namespace
}  // namespace lockstep::optim
