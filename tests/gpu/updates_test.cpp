// The kernels of the GPU against those of the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/cuda_updates.h"
#include "lockstep/optim/flat_optimizer.h"
#include "tests/optim/each_update.h"
#include "tests/support/gpu.h"

namespace lockstep::optim {
namespace {

class FusedUpdatesOnTheGpu : public OneGpu {};

UpdateTensors random_tensors(torch::ScalarType dtype, std::size_t num_states) {
  manual_seed(3);
  constexpr std::int64_t kSize = 100'003;
  const auto options = torch::dtype(torch::kFloat64);
  UpdateTensors tensors{.values = torch::randn({kSize}, options).to(dtype),
                        .grads = torch::randn({kSize}, options).to(dtype),
                        .state = {}};
  for (std::size_t i = 0; i < num_states; ++i) {
    tensors.state[i] = torch::rand({kSize}, options).to(dtype);
  }
  return tensors;
}

UpdateTensors on_gpu(const UpdateTensors& tensors) {
  const auto move = [](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.to(torch::Device(torch::kCUDA, 0)) : tensor;
  };
  return {.values = move(tensors.values),
          .grads = move(tensors.grads),
          .state = {move(tensors.state[0]), move(tensors.state[1]), move(tensors.state[2])}};
}

void expect_equal(const torch::Tensor& cpu, const torch::Tensor& gpu, double tolerance) {
  EXPECT_TRUE(torch::allclose(gpu.cpu(), cpu, tolerance, tolerance))
      << (gpu.cpu() - cpu).abs().max();
}

// One kernel has the effect of the CPU's kernel on a range, and none outside of it.
template <typename Update>
void expect_agreement(const Update& update, std::size_t num_states) {
  for (const auto& [dtype, tolerance] :
       {std::pair(torch::kFloat64, 1e-14), std::pair(torch::kFloat32, 1e-6)}) {
    const UpdateTensors cpu = random_tensors(dtype, num_states);
    const UpdateTensors gpu = on_gpu(cpu);
    const ElementRange range{.begin = 5, .end = cpu.values.numel() - 7};
    for (int step = 0; step < 3; ++step) {
      if (dtype == torch::kFloat64) {
        apply_fused<double>(update, cpu, range);
      } else {
        apply_fused<float>(update, cpu, range);
      }
      ASSERT_TRUE(apply_on_gpu(update, gpu, range));
    }
    expect_equal(cpu.values, gpu.values, tolerance);
    expect_equal(cpu.grads, gpu.grads, tolerance);
    for (std::size_t i = 0; i < num_states; ++i) {
      expect_equal(cpu.state[i], gpu.state[i], tolerance);
    }
  }
}

TEST_F(FusedUpdatesOnTheGpu, AreThoseOfTheCpu) {
  for (const bool zero : {true, false}) {
    for_each_update({.scale = 0.5, .zero = zero}, [](const auto& update, std::size_t num_states) {
      expect_agreement(update, num_states);
    });
  }
}

TEST_F(FusedUpdatesOnTheGpu, ReadTheFactorOfLambFromTheGpu) {
  const LambUpdate lamb{.eps = 1e-4, .correction1 = 0.5, .correction2 = 0.7, .step_size = 0.1};
  UpdateTensors cpu = random_tensors(torch::kFloat64, 2);
  UpdateTensors gpu = on_gpu(cpu);
  const ElementRange all{.begin = 0, .end = cpu.values.numel()};
  cpu.factor = lamb_ratio(lamb, cpu, 10);
  gpu.factor = lamb_ratio(lamb, gpu, 10);
  apply_fused<double>(lamb, cpu, all);
  ASSERT_TRUE(apply_on_gpu(lamb, gpu, all));
  expect_equal(cpu.values, gpu.values, 1e-12);
}

}  // namespace
}  // namespace lockstep::optim
