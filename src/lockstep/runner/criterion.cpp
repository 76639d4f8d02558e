#include "lockstep/runner/criterion.h"

#include <optional>

#include <torch/nn/modules/loss.h>

#include "lockstep/base/error.h"
#include "lockstep/state/named_tensors.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& item : module.named_parameters()) named.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) named.emplace_back(item.key(), item.value());
  }
  return named;
}

template <typename... Modules>
bool is_sum_of_any(const nn::Module& module) {
  const auto is_sum = [&]<typename M>(const M*) {
    const M* const known = dynamic_cast<const M*>(&module);
    return known != nullptr && torch::enumtype::get_enum_name(known->options.reduction()) == "kSum";
  };
  return (is_sum(static_cast<const Modules*>(nullptr)) || ...);
}

bool is_sum(const nn::Module& module) {
  return is_sum_of_any<nn::L1LossImpl, nn::MSELossImpl, nn::BCELossImpl, nn::BCEWithLogitsLossImpl,
                       nn::NLLLossImpl, nn::CrossEntropyLossImpl, nn::SmoothL1LossImpl,
                       nn::HuberLossImpl, nn::KLDivLossImpl, nn::PoissonNLLLossImpl,
                       nn::HingeEmbeddingLossImpl, nn::MultiMarginLossImpl,
                       nn::MultiLabelMarginLossImpl, nn::MultiLabelSoftMarginLossImpl,
                       nn::SoftMarginLossImpl, nn::CosineEmbeddingLossImpl,
                       nn::TripletMarginLossImpl, nn::MarginRankingLossImpl, nn::CTCLossImpl>(
      module);
}

// Classes that weigh differently, or not at all.
struct ClassWeights {
  torch::Tensor weight;  // of each class; undefined: all the same
  std::int64_t ignored = -100;
};

std::optional<ClassWeights> class_weights(const nn::Module* module) {
  ClassWeights found;
  if (const auto* const loss = dynamic_cast<const nn::CrossEntropyLossImpl*>(module)) {
    found = {.weight = loss->weight, .ignored = loss->options.ignore_index()};
  } else if (const auto* const nll = dynamic_cast<const nn::NLLLossImpl*>(module)) {
    found = {.weight = nll->weight, .ignored = nll->options.ignore_index()};
  } else {
    return std::nullopt;
  }
  const bool is_plain = !found.weight.defined() && found.ignored == -100;
  return is_plain ? std::nullopt : std::optional(found);
}

}  // namespace

void Criterion::to(torch::Device device) const {
  if (module_ != nullptr) module_->to(device);
}

LossMean Criterion::mean_of(const nn::Module& module) {
  if (is_sum(module)) return LossMean::kNone;
  return class_weights(&module) ? LossMean::kTargets : LossMean::kSamples;
}

double Criterion::weight_of(const torch::Tensor& targets) const {
  const auto classes = class_weights(module_.get());
  // Targets that are probabilities are counted, whatever their classes weigh.
  if (!classes || targets.is_floating_point()) return static_cast<double>(targets.size(0));
  const torch::NoGradGuard no_grad;
  const torch::Tensor counted = targets != classes->ignored;
  if (!classes->weight.defined()) return static_cast<double>(counted.sum().item<std::int64_t>());
  return classes->weight.index_select(0, targets.masked_select(counted).to(torch::kInt64))
      .sum(torch::kFloat64)
      .item<double>();
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
