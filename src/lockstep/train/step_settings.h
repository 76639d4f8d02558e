// How the gradients of batches become an update of the model.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/engine/replica.h"

namespace lockstep {

struct StepSettings {
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
  GradientFunction clip_grad = {};        // clips all gradients; null: none
  Wire wire = Wire::kFp32;                // how gradients are rounded and sent
  bool log_gradient_norm = false;         // as the metric "gradient/norm"
  std::int64_t shards = 1;                // parts of every batch, over all workers
  bool sync_bn = false;                   // backward() of batch norm is collective
};

}  // namespace lockstep
