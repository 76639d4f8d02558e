// One update of the model: backward, accumulate, clip, step. Kept in one place, where the order of
// the numerics cannot be got wrong.
#pragma once

#include <cstdint>
#include <optional>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {

struct StepSettings {
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
};

class TrainStep {
 public:
  TrainStep(optim::FlatParameters& parameters, optim::Optimizer& optimizer, StepSettings settings);

  // Adds the gradient of `loss`, the mean over `samples` samples.
  void backward(const torch::Tensor& loss, std::int64_t samples);

  // The batches added so far are enough for an update, or `last` says that no more will come.
  bool due(bool last) const;

  // Updates the model with the mean gradient over all samples added, each sample counting the same
  // whatever the size of its batch; clips that mean. Adds "gradient/norm" to `metrics` where the
  // norm had to be known.
  void update(Metrics& metrics);

  // No gradient waits for an update.
  bool between_steps() const { return batches_ == 0; }

 private:
  optim::FlatParameters& parameters_;
  optim::Optimizer& optimizer_;
  StepSettings settings_;
  std::int64_t batches_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace lockstep
