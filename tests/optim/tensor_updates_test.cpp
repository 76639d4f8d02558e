#include "lockstep/optim/tensor_updates.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/flat_optimizer.h"
#include "tests/optim/each_update.h"

namespace lockstep::optim {
namespace {

UpdateTensors random_tensors(torch::ScalarType dtype) {
  torch::manual_seed(3);
  const auto options = torch::dtype(torch::kFloat64);
  UpdateTensors tensors{.values = torch::randn({1003}, options).to(dtype),
                        .grads = torch::randn({1003}, options).to(dtype),
                        .state = {}};
  for (auto& state : tensors.state) state = torch::rand({1003}, options).to(dtype);
  return tensors;
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b, double tolerance) {
  EXPECT_TRUE(torch::allclose(a, b, tolerance, tolerance)) << (a - b).abs().max();
}

// The kernels and the torch operations have the same effect on the same arrays, over several steps.
template <typename Update>
void expect_agreement(const Update& update, std::size_t num_states) {
  for (const auto& [dtype, tolerance] :
       {std::pair(torch::kFloat64, 1e-13), std::pair(torch::kFloat32, 2e-6)}) {
    UpdateTensors fused = random_tensors(dtype);
    UpdateTensors plain = random_tensors(dtype);
    for (std::size_t i = num_states; i < 3; ++i) {
      fused.state[i].reset();
      plain.state[i].reset();
    }
    for (int step = 0; step < 3; ++step) {
      if (dtype == torch::kFloat64) {
        apply_fused<double>(update, fused, {0, fused.values.numel()});
      } else {
        apply_fused<float>(update, fused, {0, fused.values.numel()});
      }
      apply(update, plain);
      expect_close(fused.values, plain.values, tolerance);
      expect_close(fused.grads, plain.grads, tolerance);
      for (std::size_t i = 0; i < num_states; ++i) {
        expect_close(fused.state[i], plain.state[i], tolerance);
      }
    }
    // All but the moments of Lamb change values, and these change their states.
    const UpdateTensors before = random_tensors(dtype);
    EXPECT_FALSE(torch::allclose(fused.values, before.values) &&
                 torch::allclose(fused.state[0], before.state[0]));
  }
}

TEST(TensorUpdates, AgreeWithTheKernels) {
  for (const bool zero : {true, false}) {
    for_each_update({.scale = 0.5, .zero = zero}, [](const auto& update, std::size_t num_states) {
      expect_agreement(update, num_states);
    });
  }
}

TEST(TensorUpdates, LambsRatioIsThatOfTheKernels) {
  const LambUpdate lamb{
      .eps = 1e-4, .weight_decay = 0.1, .correction1 = 0.5, .correction2 = 0.7, .step_size = 0.1};
  const UpdateTensors tensors = random_tensors(torch::kFloat64);
  const LambSquares squares = kernels::lamb_squares(lamb, arrays_of<double>(tensors),
                                                    {.begin = 0, .end = tensors.values.numel()});
  const double expected = std::sqrt(squares.values / squares.updates);
  const torch::Tensor ratio = lamb_ratio(lamb, tensors, 1e9);
  EXPECT_NEAR(ratio.item<double>(), expected, 1e-9 * expected);
  EXPECT_NEAR(lamb_ratio(lamb, tensors, 2.0).item<double>(), 2.0 / std::sqrt(squares.updates),
              1e-9);
  // A parameter that is zero must be able to leave it.
  UpdateTensors zero = tensors;
  zero.values = torch::zeros_like(tensors.values);
  EXPECT_EQ(lamb_ratio(lamb, zero, 1e9).item<double>(), 1.0);
}

TEST(TensorUpdates, LambsStepSizeHasAFactor) {
  const LambUpdate lamb{.eps = 1e-4, .correction1 = 0.5, .correction2 = 0.7, .step_size = 0.1};
  UpdateTensors fused = random_tensors(torch::kFloat32);
  fused.factor = torch::full({}, 0.25, torch::kFloat64);
  UpdateTensors plain = random_tensors(torch::kFloat32);
  plain.factor = fused.factor;
  apply_fused<float>(lamb, fused, {0, fused.values.numel()});
  apply(lamb, plain);
  expect_close(fused.values, plain.values, 2e-6);
  plain.factor = torch::Tensor();
  plain.values = random_tensors(torch::kFloat32).values;
  apply(lamb, plain);
  EXPECT_FALSE(torch::allclose(fused.values, plain.values));
}

}  // namespace
}  // namespace lockstep::optim
