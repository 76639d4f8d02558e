#include "lockstep/train/options.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/run_length.h"
#include "lockstep/train/train_step.h"

namespace lockstep {

void check_options(const TrainOptions& options) {
  if (options.num_epochs < 1) {
    throw ConfigError("num_epochs: expected 1 or more, got {}", options.num_epochs);
  }
  check_length(options);
  check_settings({.accumulation_steps = options.accumulation_steps,
                  .clip_grad_norm = options.clip_grad_norm,
                  .clip_grad_value = options.clip_grad_value,
                  .clip_grad = options.clip_grad});
  if (options.grad_scaler) optim::check_options(*options.grad_scaler);
  if (options.lr_base_batch_size && *options.lr_base_batch_size < 1) {
    throw ConfigError("lr_base_batch_size: expected 1 or more, got {}",
                      *options.lr_base_batch_size);
  }
  if (options.valid_metric && !options.valid_loader) {
    throw ConfigError("valid_metric '{}': set valid_loader, too, to say whose metric it is",
                      *options.valid_metric);
  }
  if (!options.weights_skip.empty() && !options.weights) {
    throw ConfigError("weights_skip: set weights, too: the file that '{}' is not taken from",
                      options.weights_skip.front());
  }
  if (options.weights && !options.network_weights.empty()) {
    throw ConfigError("weights: expected weights or network_weights, got both");
  }
  for (const auto& [name, count] :
       {std::pair("workers", options.workers), std::pair("shards", options.shards)}) {
    if (!count) continue;
    if (*count < 1) throw ConfigError("{}: expected 1 or more, got {}", name, *count);
    if (!options.ddp) throw ConfigError("{}: {} makes sense with ddp = true only", name, *count);
  }
  if (options.max_restarts < 0) {
    throw ConfigError("max_restarts: expected 0 or more, got {}", options.max_restarts);
  }
  if (options.min_workers < 1) {
    throw ConfigError("min_workers: expected 1 or more, got {}", options.min_workers);
  }
  if (options.max_restarts > 0 && !options.ddp && options.engine == nullptr) {
    throw ConfigError("max_restarts: {} makes sense with workers only: set ddp = true",
                      options.max_restarts);
  }
  for (const auto& logger : options.loggers) {
    if (logger == nullptr) throw ConfigError("loggers: expected a logger, got a null pointer");
  }
}

}  // namespace lockstep
