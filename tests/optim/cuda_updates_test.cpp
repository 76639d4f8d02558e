// Their numbers are compared with those of the CPU in tests/gpu/updates_test.cpp.
#include "lockstep/optim/cuda_updates.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/optim/each_update.h"

namespace lockstep::optim {
namespace {

TEST(CudaUpdates, AreNotForTensorsOfTheCpu) {
  const UpdateTensors tensors{.values = torch::ones({3}), .grads = torch::ones({3}), .state = {}};
  for_each_update({}, [&](const auto& update, std::size_t) {
    EXPECT_FALSE(apply_on_gpu(update, tensors, {0, 3}));
  });
  EXPECT_TRUE(torch::equal(tensors.values, torch::ones({3})));
}

}  // namespace
}  // namespace lockstep::optim
