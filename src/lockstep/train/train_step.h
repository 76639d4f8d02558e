// One update of the model: backward, accumulate, reduce, clip, step. Kept in one place, where the
// order of the numerics cannot be got wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/replica.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/loss.h"

namespace lockstep {

struct StepSettings {
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
  std::int64_t shards = 1;                // parts of every batch, over all workers
  bool sync_bn = false;                   // batch norm meets the other workers in backward()
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
  // Adds the gradient of `loss` of a shard with so many samples. Throws ConfigError for a loss of
  // kMixed where batches are split, and where some losses are sums and others are means.
  void backward(const torch::Tensor& loss, const LossOver& over, std::int64_t samples);
  void end_shard(int local);

  // The batches added so far are enough for an update, or `last` says that no more will come.
  bool due(bool last) const;

  // Collective. Updates the model with the mean gradient over all samples of all workers, each
  // sample counting the same whatever the size of its batch; or over what losses were said to be
  // means over, over all workers and batches of the update; or with the sum, where losses are sums.
  // Clips that mean. Adds "gradient/norm" to `metrics` where the norm had to be known.
  void update(Metrics& metrics);

  // Gradients are reduced while backward() goes on; after an unfreeze this may change.
  bool sends_gradients_early() const { return replica_.overlaps(); }

  // No gradient waits for an update.
  bool between_steps() const { return batches_ == 0; }

 private:
  // A batch, or what makes an update, is split into parts.
  bool is_split() const { return settings_.accumulation_steps > 1 || settings_.shards > 1; }
  void note_weight(double weight, std::int64_t samples);
  // What makes a mean of the sum of all gradients, from what all shards weigh; from nothing where
  // all weigh their samples.
  double scale_of(std::span<const double> weights) const;

  Replica& replica_;
  optim::Optimizer& optimizer_;
  StepSettings settings_;
  GlobalBatch batch_;
  std::int64_t batches_ = 0;
  std::int64_t samples_ = 0;  // of all workers, in these batches
  std::size_t local_ = 0;     // the shard at work
  // What was added of each of this worker's shards: what their losses are means over; kSum: they
  // are sums; 0: nothing.
  static constexpr double kSum = -1;
  std::vector<double> own_;
};

}  // namespace lockstep
