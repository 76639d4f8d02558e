// The generator of a GPU, which is seeded with that of the CPU.
#include "lockstep/train/random.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/gpu.h"

namespace lockstep {
namespace {

class DrawsOfAGpu : public OneGpu {};

TEST_F(DrawsOfAGpu, AreRestoredAfterAScope) {
  torch::zeros({1}, torch::kCUDA);  // starts CUDA
  manual_seed(5);
  torch::rand({100}, torch::kCUDA);  // the state is more than the seed
  const torch::Tensor expected = torch::rand({4}, torch::kCUDA);
  manual_seed(5);
  torch::rand({100}, torch::kCUDA);
  {
    const RandomStateScope scope;
    torch::rand({17}, torch::kCUDA);
    seed_draws({.seed = 6});
  }
  EXPECT_TRUE(torch::rand({4}, torch::kCUDA).equal(expected));
}

TEST_F(DrawsOfAGpu, MayBeginInAScope) {
  const RandomStateScope scope;
  EXPECT_FALSE(cuda_is_started()) << "the scope must not start CUDA";
  torch::rand({17}, torch::kCUDA);
}

}  // namespace
}  // namespace lockstep
