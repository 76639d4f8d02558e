#include "lockstep/train/without_gradients.h"

namespace lockstep {

WithoutGradients::WithoutGradients(std::span<const torch::Tensor> parameters) {
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    parameter.set_requires_grad(false);
    changed_.push_back(parameter);
  }
}

WithoutGradients::~WithoutGradients() {
  for (const torch::Tensor& parameter : changed_) parameter.set_requires_grad(true);
}

}  // namespace lockstep
