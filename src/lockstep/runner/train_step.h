// One update of the model: backward, accumulate, reduce, clip, step. Kept in one place, where the
// order of the numerics cannot be got wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/replica.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/runner/criterion.h"

namespace lockstep {

struct StepSettings {
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
  std::int64_t shards = 1;                // parts of every batch, over all workers
  LossMean mean = LossMean::kSamples;     // what a loss was divided by
};

// Throws ConfigError for values without meaning.
void check_settings(const StepSettings& settings);

// Updates of an epoch, over all train loaders.
std::int64_t steps_per_epoch(const data::Loaders& loaders, std::int64_t accumulation_steps,
                             std::int64_t shards);

// For each global batch: begin_batch(); for each of this worker's shards begin_shard(), backward()
// where it has samples, end_shard(); then update() where due().
class TrainStep {
 public:
  TrainStep(Replica& replica, optim::Optimizer& optimizer, StepSettings settings);

  struct GlobalBatch {
    std::int64_t samples = 0;     // of all shards
    std::int64_t batch_size = 1;  // what a full shard has
    bool last = false;            // no batch will come after it
  };
  void begin_batch(const GlobalBatch& batch);

  void begin_shard(int local);
  // Adds the gradient of `loss`, the mean over what weighs so much: samples, or targets.
  void backward(const torch::Tensor& loss, double weight);
  void end_shard(int local);

  // The batches added so far are enough for an update, or `last` says that no more will come.
  bool due(bool last) const;

  // Collective. Updates the model with the mean gradient over all samples of all workers, each
  // sample counting the same whatever the size of its batch (or as its target weighs; or with their
  // sum, where losses are sums); clips that mean. Adds "gradient/norm" to `metrics` where the norm
  // had to be known.
  void update(Metrics& metrics);

  // No gradient waits for an update.
  bool between_steps() const { return batches_ == 0; }

 private:
  bool is_weighted() const { return settings_.accumulation_steps > 1 || settings_.shards > 1; }
  double scale();  // that makes a mean of the sum of all gradients

  Replica& replica_;
  optim::Optimizer& optimizer_;
  StepSettings settings_;
  GlobalBatch batch_;
  std::int64_t batches_ = 0;
  double weight_ = 0;        // samples added, in full shards
  std::size_t local_ = 0;    // the shard at work
  std::vector<double> own_;  // weights added, of each of this worker's shards
};

}  // namespace lockstep
