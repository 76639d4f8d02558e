#include "lockstep/callback/histograms.h"

#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/callback/parameter_patterns.h"

namespace lockstep {
namespace {

constexpr const char* kHistograms = "HistogramsCallback";

template <typename T>
std::optional<Histogram> histogram_of(const torch::Tensor& plain) {
  return make_histogram(
      std::span<const T>(plain.data_ptr<T>(), static_cast<std::size_t>(plain.numel())));
}

std::optional<Histogram> histogram_of(const torch::Tensor& values) {
  const torch::Tensor plain = values.detach().cpu().contiguous();
  return plain.scalar_type() == torch::kFloat32 ? histogram_of<float>(plain)
                                                : histogram_of<double>(plain.to(torch::kFloat64));
}

}  // namespace

HistogramsCallback::HistogramsCallback(HistogramsCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.every_epochs < 1) {
    throw ConfigError("{}: every_epochs: expected 1 or more, got {}", kHistograms,
                      options_.every_epochs);
  }
  if (options_.every_steps && *options_.every_steps < 1) {
    throw ConfigError("{}: every_steps: expected 1 or more, got {}", kHistograms,
                      *options_.every_steps);
  }
  if (!options_.weights && !options_.gradients) {
    throw ConfigError("{}: expected weights, gradients or both, got none", kHistograms);
  }
}

std::string HistogramsCallback::agreed_options() const {
  return OptionText()
      .with("names", options_.names)
      .with("weights", options_.weights)
      .with("gradients", options_.gradients)
      .with("every_epochs", options_.every_epochs)
      .with("every_steps", options_.every_steps)
      .str();
}

void HistogramsCallback::check(const State& state) const {
  check_parameter_patterns(options_.names, state, kHistograms);
}

void HistogramsCallback::on_run_start(State& state) {
  const bool is_resumed =
      std::exchange(has_loaded_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  if (!is_resumed) unlogged_ = 0;
}

// `updates` includes the current one.
bool HistogramsCallback::is_due(const State& state, std::int64_t updates) const {
  if (options_.every_steps) return updates >= *options_.every_steps;
  return state.progress.epoch % options_.every_epochs == 0 &&
         state.loader_batch == state.loader_batches;
}

bool HistogramsCallback::matches(const std::string& name) const {
  return options_.names.empty() || matches_any(options_.names, name);
}

// An update after the last batch of a pass that ended early is followed by no on_step.
void HistogramsCallback::on_loader_start(State&) {
  found_.clear();
}

bool HistogramsCallback::wants_gradients(const State& state) const {
  return options_.gradients && is_due(state, unlogged_ + 1);
}

// They are logged in on_step, when the update is counted.
void HistogramsCallback::on_gradients(State&, const SummedGradients& gradients) {
  for (const auto& [name, sum, scale] : gradients) {
    if (matches(name)) add("gradients/" + name, sum * scale);
  }
}

void HistogramsCallback::add(const std::string& tag, const torch::Tensor& values) {
  if (const auto histogram = histogram_of(values)) found_.emplace_back(tag, *histogram);
}

void HistogramsCallback::on_step(State& state) {
  if (!state.is_train || state.stepped.empty()) return;
  ++unlogged_;
  if (!is_due(state, unlogged_)) return;
  unlogged_ = 0;
  if (state.loggers.empty()) return;  // only rank 0 has loggers
  if (options_.weights) {
    for (const auto& [name, parameter] : state.model.parameters()) {
      if (matches(name)) add("weights/" + name, parameter);
    }
  }
  for (const auto& [tag, histogram] : std::exchange(found_, {})) {
    for (const auto& logger : state.loggers) {
      logger->log_histogram(state.loader, tag, histogram, state.progress);
    }
  }
}

StateDict HistogramsCallback::state() const {
  return unlogged_ == 0 ? StateDict() : StateDict{{"unlogged", unlogged_}};
}

void HistogramsCallback::load_state(const StateDict& state) {
  has_loaded_ = state.size() > 0;
  unlogged_ = state.get_or<std::int64_t>("unlogged", 0);
}

}  // namespace lockstep
