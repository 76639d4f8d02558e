#include "lockstep/runner/train_step.h"

#include "lockstep/base/error.h"

namespace lockstep {

TrainStep::TrainStep(optim::FlatParameters& parameters, optim::Optimizer& optimizer,
                     StepSettings settings)
    : parameters_(parameters), optimizer_(optimizer), settings_(settings) {
  if (settings_.accumulation_steps < 1) {
    throw ConfigError("accumulation_steps: expected 1 or more, got {}",
                      settings_.accumulation_steps);
  }
  for (const auto& [name, limit] : {std::pair("clip_grad_norm", settings_.clip_grad_norm),
                                    std::pair("clip_grad_value", settings_.clip_grad_value)}) {
    // Written so that NaN is refused, too.
    if (limit && !(*limit > 0)) {
      throw ConfigError("{}: expected a positive number, got {}", name, *limit);
    }
  }
}

void TrainStep::backward(const torch::Tensor& loss, std::int64_t samples) {
  if (settings_.accumulation_steps == 1) {
    loss.backward();
  } else {
    // Weighted by samples here, divided by all samples of the window in update().
    loss.backward(torch::full_like(loss, static_cast<double>(samples)));
  }
  parameters_.collect_grads();
  ++batches_;
  samples_ += samples;
}

bool TrainStep::due(bool last) const {
  return batches_ > 0 && (last || batches_ == settings_.accumulation_steps);
}

void TrainStep::update(Metrics& metrics) {
  double scale = settings_.accumulation_steps == 1 ? 1.0 : 1.0 / static_cast<double>(samples_);
  if (settings_.clip_grad_value) parameters_.clip_grad_value(*settings_.clip_grad_value / scale);
  if (settings_.clip_grad_norm) {
    const double norm = parameters_.grad_norm() * scale;
    metrics["gradient/norm"] = norm;
    scale *= optim::clip_scale({.norm = norm, .max_norm = *settings_.clip_grad_norm});
  }
  optimizer_.step({.grad_scale = scale, .zero_grad = true});
  batches_ = 0;
  samples_ = 0;
}

}  // namespace lockstep
