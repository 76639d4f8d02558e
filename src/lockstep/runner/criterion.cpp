#include "lockstep/runner/criterion.h"

#include "lockstep/base/error.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {
namespace {

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& item : module.named_parameters()) named.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) named.emplace_back(item.key(), item.value());
  }
  return named;
}

}  // namespace

void Criterion::to(torch::Device device) const {
  if (module_ != nullptr) module_->to(device);
}

StateDict Criterion::state() const {
  StateDict state;
  if (module_ == nullptr) return state;
  for (const auto& [name, tensor] : tensors_of(*module_)) state.set(name, tensor.detach().clone());
  return state;
}

void Criterion::load_state(const StateDict& state) const {
  if (module_ == nullptr) return;
  torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_of(*module_)) {
    const auto saved = state.get<torch::Tensor>(name);
    if (saved.sizes() != tensor.sizes()) {
      throw CheckpointError("criterion weight '{}' has another shape in the checkpoint", name);
    }
    torch::Tensor target = tensor;
    target.copy_(saved);
  }
}

}  // namespace lockstep
