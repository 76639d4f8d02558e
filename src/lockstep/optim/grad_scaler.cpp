#include "lockstep/optim/grad_scaler.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

constexpr double kLeastScale = 0x1p-30;

}  // namespace

void check_options(const GradScalerOptions& options) {
  // Written so that NaN is refused, too.
  if (!(options.init_scale > 0) || !std::isfinite(static_cast<float>(options.init_scale))) {
    throw ConfigError("grad_scaler: init_scale: expected a positive number of float32, got {}",
                      options.init_scale);
  }
  if (!(options.growth_factor > 1)) {
    throw ConfigError("grad_scaler: growth_factor: expected more than 1, got {}",
                      options.growth_factor);
  }
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    throw ConfigError("grad_scaler: backoff_factor: expected a number between 0 and 1, got {}",
                      options.backoff_factor);
  }
  if (options.growth_interval < 1) {
    throw ConfigError("grad_scaler: growth_interval: expected 1 or more, got {}",
                      options.growth_interval);
  }
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(static_cast<float>(options.init_scale)) {
  check_options(options);
}

void GradScaler::note_update(bool skipped) {
  any_update_ = true;
  any_skipped_ = any_skipped_ || skipped;
  if (skipped) ++skipped_;
}

// As in PyTorch, the products are computed in double and rounded to float32, and a scale that would
// be infinite stays as it is.
void GradScaler::adjust() {
  if (!std::exchange(any_update_, false)) return;
  if (std::exchange(any_skipped_, false)) {
    scale_ = static_cast<float>(scale_ * options_.backoff_factor);
    growth_tracker_ = 0;
    if (scale_ >= kLeastScale) return;
    throw Error(
        "gradients: they are not finite, although the scale of the loss has fallen to {}, and {} "
        "updates were skipped: the loss itself is not finite, or the model's values are too large "
        "for fp16; train it with bf16 or fp32",
        scale_, skipped_);
  }
  if (++growth_tracker_ < options_.growth_interval) return;
  growth_tracker_ = 0;
  const auto grown = static_cast<float>(scale_ * options_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
}

StateDict GradScaler::state() const {
  return {
      {"scale", static_cast<double>(scale_)},      {"growth_factor", options_.growth_factor},
      {"backoff_factor", options_.backoff_factor}, {"growth_interval", options_.growth_interval},
      {"_growth_tracker", growth_tracker_},        {"skipped", skipped_}};
}

void GradScaler::load_state(const StateDict& state) {
  GradScalerOptions options = options_;
  options.init_scale = state.get<double>("scale");
  options.growth_factor = state.get<double>("growth_factor");
  options.backoff_factor = state.get<double>("backoff_factor");
  options.growth_interval = state.get<std::int64_t>("growth_interval");
  try {
    check_options(options);
  } catch (const ConfigError& error) {
    throw CheckpointError("scaler_state_dict: {}", error.what());
  }
  options_ = options;
  scale_ = static_cast<float>(options.init_scale);
  growth_tracker_ = state.get<std::int64_t>("_growth_tracker");
  skipped_ = state.get_or<std::int64_t>("skipped", 0);
  any_update_ = any_skipped_ = false;
}

}  // namespace lockstep::optim
