#include "lockstep/callback/gradient_norms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/callback/parameter_patterns.h"
#include "lockstep/optim/kernels.h"

namespace lockstep {
namespace {

constexpr const char* kGradientNorms = "GradientNormsCallback";

template <typename T>
double squares_of(const torch::Tensor& tensor) {
  namespace kernels = optim::kernels;
  const T* const data = tensor.data_ptr<T>();
  double sum = 0;
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += kernels::kSumBlock) {
    sum +=
        kernels::sum_of_squares(data + begin, std::min(kernels::kSumBlock, tensor.numel() - begin));
  }
  return sum;
}

// Summed in an order that does not depend on the number of threads.
double sum_of_squares(const torch::Tensor& gradient) {
  const torch::Tensor plain = gradient.cpu().contiguous();
  if (plain.scalar_type() == torch::kFloat32) return squares_of<float>(plain);
  return squares_of<double>(plain.to(torch::kFloat64));
}

std::string module_of(const std::string& parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

}  // namespace

GradientNormsCallback::GradientNormsCallback(GradientNormsCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.every < 1) {
    throw ConfigError("{}: every: expected 1 or more, got {}", kGradientNorms, options_.every);
  }
}

std::string GradientNormsCallback::agreed_options() const {
  return OptionText()
      .with("by", options_.by == NormsBy::kModule ? "module" : "parameter")
      .with("names", options_.names)
      .with("every", options_.every)
      .str();
}

void GradientNormsCallback::check(const State& state) const {
  check_parameter_patterns(options_.names, state, kGradientNorms);
}

void GradientNormsCallback::on_run_start(State& state) {
  const bool is_resumed =
      std::exchange(has_loaded_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  if (is_resumed) return;
  unmeasured_ = 0;
  norms_.clear();
}

void GradientNormsCallback::on_loader_start(State& state) {
  if (state.loader_batch == 0) norms_.clear();  // else the pass was resumed
}

bool GradientNormsCallback::wants_gradients(const State&) const {
  return unmeasured_ + 1 >= options_.every;
}

void GradientNormsCallback::on_gradients(State&, const SummedGradients& gradients) {
  std::map<std::string, double> squares;
  for (const auto& [name, sum, scale] : gradients) {
    if (!options_.names.empty() && !matches_any(options_.names, name)) continue;
    const std::string key = options_.by == NormsBy::kModule ? module_of(name) : name;
    squares[key] += sum_of_squares(sum) * scale * scale;
  }
  for (const auto& [name, square] : squares) {
    norms_[name].sum += std::sqrt(square);
    norms_[name].count += 1;
  }
}

void GradientNormsCallback::on_step(State& state) {
  if (!state.is_train || state.stepped.empty()) return;
  unmeasured_ = unmeasured_ + 1 >= options_.every ? 0 : unmeasured_ + 1;
}

void GradientNormsCallback::on_loader_end(State& state) {
  if (!state.is_train) return;
  for (const auto& [name, mean] : norms_) {
    state.loader_metrics["gradient_norm/" + name] = mean.sum / static_cast<double>(mean.count);
  }
}

StateDict GradientNormsCallback::state() const {
  if (unmeasured_ == 0 && norms_.empty()) return {};
  StateDict norms;
  for (const auto& [name, mean] : norms_) {
    norms.set(name, StateDict{{"sum", mean.sum}, {"count", mean.count}});
  }
  return {{"unmeasured", unmeasured_}, {"norms", std::move(norms)}};
}

void GradientNormsCallback::load_state(const StateDict& state) {
  has_loaded_ = state.size() > 0;
  unmeasured_ = state.get_or<std::int64_t>("unmeasured", 0);
  norms_.clear();
  for (const auto& [name, mean] : state.get_or<StateDict>("norms", {})) {
    const auto* const saved = mean.get_if<StateDict>();
    if (saved == nullptr) throw CheckpointError("{}: expected a sum of '{}'", kGradientNorms, name);
    norms_[name] = {saved->get<double>("sum"), saved->get<std::int64_t>("count")};
  }
}

}  // namespace lockstep
