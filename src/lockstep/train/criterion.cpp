#include "lockstep/train/criterion.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <typeinfo>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/modules/loss.h>

#include "lockstep/base/error.h"
#include "lockstep/state/hash.h"
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

template <typename... Modules>
bool is_exactly_any(const nn::Module& module) {
  return ((typeid(module) == typeid(Modules)) || ...);
}

// Whether the criterion compares each output with one target, which is a number.
bool compares_numbers(const nn::Module& module) {
  return is_exactly_any<nn::MSELossImpl, nn::L1LossImpl, nn::SmoothL1LossImpl, nn::HuberLossImpl,
                        nn::BCELossImpl, nn::BCEWithLogitsLossImpl>(module);
}

// The weights of the classes, and the class that is ignored.
struct ClassWeights {
  torch::Tensor weight;  // of each class; undefined: all the same
  std::int64_t ignored = -100;
};

// Read in every batch, because the weights are a buffer, which loading a checkpoint may change.
std::optional<ClassWeights> class_weights(const nn::Module* module) {
  if (const auto* const loss = dynamic_cast<const nn::CrossEntropyLossImpl*>(module)) {
    return ClassWeights{.weight = loss->weight, .ignored = loss->options.ignore_index()};
  }
  if (const auto* const nll = dynamic_cast<const nn::NLLLossImpl*>(module)) {
    return ClassWeights{.weight = nll->weight, .ignored = nll->options.ignore_index()};
  }
  return std::nullopt;
}

// The number of targets that are not ignored. Uses a plain loop if possible: for a batch of a few
// samples, tensor operations would take longer than the rest of a small step.
double count_of(const torch::Tensor& targets, std::int64_t ignored) {
  if (targets.device().is_cpu() && targets.scalar_type() == torch::kInt64 &&
      targets.is_contiguous()) {
    const auto* const begin = targets.data_ptr<std::int64_t>();
    const auto* const end = begin + targets.numel();
    return static_cast<double>(targets.numel() - std::count(begin, end, ignored));
  }
  return static_cast<double>((targets != ignored).sum().item<std::int64_t>());
}

double weight_of(const torch::Tensor& targets, const ClassWeights& classes) {
  const torch::NoGradGuard no_grad;
  // For probabilities as targets, LibTorch divides by their number, whatever the weights of the
  // classes are.
  if (targets.is_floating_point()) {
    return targets.dim() < 2 ? 1.0 : static_cast<double>(targets.numel() / targets.size(1));
  }
  if (!classes.weight.defined()) return count_of(targets, classes.ignored);
  const torch::Tensor counted = targets.masked_select(targets != classes.ignored);
  return classes.weight.index_select(0, counted.to(torch::kInt64))
      .sum(torch::kFloat64)
      .item<double>();
}

}  // namespace

void Criterion::to(torch::Device device) const {
  if (module_ != nullptr) module_->to(device);
}

bool Criterion::mixes_samples() const {
  const auto* const stated = dynamic_cast<const StatedLoss*>(module_.get());
  return stated != nullptr && stated->mixes_samples();
}

Criterion::Over Criterion::over_of(const std::shared_ptr<nn::Module>& module) {
  if (const auto stated = std::dynamic_pointer_cast<const StatedLoss>(module)) {
    return [stated](const torch::Tensor& outputs, const torch::Tensor& targets) {
      return stated->over(outputs, targets);
    };
  }
  if (is_sum(*module)) {
    return [](const torch::Tensor&, const torch::Tensor&) { return sum_over_samples(); };
  }
  if (!class_weights(module.get())) return {};
  return [module](const torch::Tensor&, const torch::Tensor& targets) {
    return lockstep::mean_over(weight_of(targets, *class_weights(module.get())));
  };
}

void Criterion::check_shapes(const torch::Tensor& outputs, const torch::Tensor& targets) const {
  if (module_ == nullptr || !compares_numbers(*module_)) return;
  if (outputs.sizes() == targets.sizes() && targets.is_floating_point()) return;
  throw ConfigError("expected floating-point targets of the output's shape");
}

void Criterion::check_classes(const torch::Tensor& outputs, const torch::Tensor& targets) const {
  const auto classes = class_weights(module_.get());
  if (!classes || targets.scalar_type() != torch::kInt64 || outputs.dim() < 2) return;
  const torch::Tensor counted = targets.masked_select(targets != classes->ignored);
  if (counted.numel() == 0) return;
  const auto smallest = counted.min().item<std::int64_t>();
  const auto largest = counted.max().item<std::int64_t>();
  if (smallest >= 0 && largest < outputs.size(1)) return;
  throw ConfigError(
      "class {} is among the targets, but there are outputs for classes 0 to {}{}",
      smallest < 0 ? smallest : largest, outputs.size(1) - 1,
      smallest < 0 ? "; mark targets that do not count with the criterion's ignore_index" : "");
}

Criterion Criterion::mean_over(Weight weight) const {
  if (!weight) throw ConfigError("Criterion::mean_over: expected a function, got none");
  Criterion said = *this;
  said.over_ = [weight = std::move(weight)](const torch::Tensor& outputs,
                                            const torch::Tensor& targets) {
    return lockstep::mean_over(weight(outputs, targets));
  };
  return said;
}

Criterion Criterion::as_sum() const {
  Criterion said = *this;
  said.over_ = [](const torch::Tensor&, const torch::Tensor&) { return sum_over_samples(); };
  return said;
}

Criterion Criterion::over_samples() const {
  Criterion said = *this;
  said.over_ = [over = over_](const torch::Tensor& outputs, const torch::Tensor& targets) {
    const LossOver before = over ? over(outputs, targets) : lockstep::mean_over_samples();
    if (before.kind == LossOver::Kind::kSamples) return before;
    const bool has_shares = targets.is_floating_point() && targets.dim() > 1;
    const auto count =
        static_cast<double>(has_shares ? targets.numel() / targets.size(1) : targets.numel());
    if (before.kind == LossOver::Kind::kWeight && before.weight == count) {
      return lockstep::mean_over_samples();
    }
    throw ConfigError(
        "over_samples: expected a loss in which all {} targets of a batch count the same, got {}; "
        "a "
        "mean over samples would be another loss",
        count,
        before.kind == LossOver::Kind::kWeight ? fmt::format("a weight of {}", before.weight)
                                               : "a sum");
  };
  return said;
}

std::string Criterion::describe() const {
  if (module_ == nullptr) return function_ ? "a function" : "none";
  std::ostringstream text;
  text << *module_;
  // For example class weights.
  const StateDict weights = state();
  if (weights.size() > 0) text << " with weights " << content_hash(weights);
  return text.str();
}

std::vector<torch::Tensor> Criterion::parameters() const {
  return module_ == nullptr ? std::vector<torch::Tensor>() : module_->parameters();
}

StateDict Criterion::state() const {
  StateDict state;
  if (module_ == nullptr) return state;
  for (const auto& [name, tensor] : tensors_of(*module_)) state.set(name, tensor.detach().clone());
  return state;
}

StateDict Criterion::view_state() const {
  StateDict state;
  if (module_ == nullptr) return state;
  for (const auto& [name, tensor] : tensors_of(*module_)) state.set(name, tensor.detach());
  return state;
}

void Criterion::load_state(const StateDict& state) const {
  if (module_ == nullptr) return;
  torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : tensors_of(*module_)) {
    const auto saved = state.get<torch::Tensor>(name);
    if (saved.sizes() != tensor.sizes()) {
      throw CheckpointError("criterion weight '{}': expected shape [{}], found [{}]", name,
                            fmt::join(tensor.sizes(), ", "), fmt::join(saved.sizes(), ", "));
    }
    torch::Tensor target = tensor;
    target.copy_(saved);
  }
}

}  // namespace lockstep
