// How the gradients of batches become an update of the model.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

struct StepSettings {
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
  std::int64_t shards = 1;                // parts of every batch, over all workers
  bool sync_bn = false;                   // backward() of batch norm is collective
};

}  // namespace lockstep
