#include "lockstep/compute/thread_state.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/compute/checkpointed.h"

namespace lockstep::compute {
namespace {

thread_local double scale = 1;

void inherit_scale_once() {
  static const bool done = [] {
    inherit_thread_state([]() -> SetThreadState {
      return [own = scale] {
        const double before = std::exchange(scale, own);
        return std::shared_ptr<void>(nullptr, [before](void*) { scale = before; });
      };
    });
    return true;
  }();
  ASSERT_TRUE(done);
}

TEST(ThreadState, IsSetInAnotherThreadAndThenRestored) {
  inherit_scale_once();
  scale = 3;
  const auto states = captured_thread_state();
  scale = 1;
  std::thread([&] {
    scale = 7;
    {
      std::vector<std::shared_ptr<void>> held;
      for (const auto& set : states) held.push_back(set());
      EXPECT_EQ(scale, 3);
    }
    EXPECT_EQ(scale, 7);
  }).join();
}

struct ScaledImpl : torch::nn::Module {
  // The gradient is wrong if the module finds another scale when it is computed again.
  torch::Tensor forward(const torch::Tensor& x) { return (x * scale).square(); }
};
TORCH_MODULE(Scaled);

// As on a GPU, where backward() runs in a thread of autograd.
TEST(ThreadState, ACheckpointedModuleFindsThatOfItsForward) {
  inherit_scale_once();
  scale = 3;
  const torch::Tensor x = torch::ones({2}).requires_grad_();
  const torch::Tensor y = checkpointed(Scaled())->forward(x).sum();
  scale = 1;
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(x.grad().equal(torch::full({2}, 18.0)));
}

}  // namespace
}  // namespace lockstep::compute
