#include "lockstep/optim/tensor_updates.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/flat_optimizer.h"

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
void expect_agreement(const Update& update, std::size_t num_states = 3) {
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
    EXPECT_FALSE(torch::allclose(fused.values, random_tensors(dtype).values));
  }
}

TEST(TensorUpdates, AgreeWithTheKernels) {
  for (const bool zero : {true, false}) {
    const GradientUse gradient{.scale = 0.5, .zero = zero};
    const AdamUpdate adam{.gradient = gradient,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-4,
                          .weight_decay = 0.1,
                          .shrink = 0.99,
                          .step_size = 0.013,
                          .sqrt_correction = 0.7};
    expect_agreement(adam, 2);
    expect_agreement(adam, 3);
    SGDUpdate sgd{.gradient = gradient, .lr = 0.013, .weight_decay = 0.1};
    expect_agreement(sgd, 0);
    sgd.momentum = 0.9;
    sgd.gain = 0.6;
    expect_agreement(sgd, 1);
    sgd.nesterov = true;
    expect_agreement(sgd, 1);
    RMSpropUpdate rmsprop{
        .gradient = gradient, .lr = 0.013, .alpha = 0.9, .eps = 0.1, .weight_decay = 0.1};
    expect_agreement(rmsprop, 1);
    expect_agreement(rmsprop, 2);
    rmsprop.momentum = 0.9;
    expect_agreement(rmsprop, 3);
    RAdamUpdate radam{.gradient = gradient,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-4,
                      .weight_decay = 0.1,
                      .step_size = 0.013};
    expect_agreement(radam, 2);
    radam.rectified = false;
    expect_agreement(radam, 2);
    expect_agreement(NAdamUpdate{.gradient = gradient,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .eps = 1e-4,
                                 .weight_decay = 0.1,
                                 .correction = 0.7,
                                 .gradient_size = 0.013,
                                 .momentum_size = 0.1},
                     2);
    expect_agreement(AdamaxUpdate{.gradient = gradient,
                                  .beta1 = 0.9,
                                  .beta2 = 0.99,
                                  .eps = 1e-4,
                                  .weight_decay = 0.1,
                                  .step_size = 0.013},
                     2);
    expect_agreement(
        AdadeltaUpdate{
            .gradient = gradient, .lr = 0.5, .rho = 0.9, .eps = 1e-3, .weight_decay = 0.1},
        2);
    expect_agreement(
        LionUpdate{.gradient = gradient, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .shrink = 0.99},
        1);
    expect_agreement(
        AdagradUpdate{.gradient = gradient, .lr = 0.013, .eps = 1e-6, .weight_decay = 0.1}, 1);
  }
}

TEST(TensorUpdates, OfLambAndLookaheadAgreeWithTheKernels) {
  const LambUpdate lamb{
      .eps = 1e-4, .weight_decay = 0.1, .correction1 = 0.5, .correction2 = 0.7, .step_size = 0.1};
  expect_agreement(lamb, 2);
  expect_agreement(LookaheadUpdate{.alpha = 0.3}, 1);
  const UpdateTensors tensors = random_tensors(torch::kFloat64);
  const LambSquares plain = lamb_squares(lamb, tensors);
  const LambSquares fused = kernels::lamb_squares(
      lamb,
      kernels::Arrays<double>{
          .values = tensors.values.data_ptr<double>(),
          .grads = nullptr,
          .state = {tensors.state[0].data_ptr<double>(), tensors.state[1].data_ptr<double>()}},
      {.begin = 0, .end = tensors.values.numel()});
  EXPECT_NEAR(plain.values, fused.values, 1e-9 * fused.values);
  EXPECT_NEAR(plain.updates, fused.updates, 1e-9 * fused.updates);
}

}  // namespace
}  // namespace lockstep::optim
