// One update of the model: backward, accumulate, reduce, clip, step. All are in one place, so that
// the order of the numerical operations is always right.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/model_buffers.h"
#include "lockstep/engine/replica.h"
#include "lockstep/loss/over.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/device_copies.h"
#include "lockstep/train/step_settings.h"

namespace lockstep {

// Throws ConfigError for values that make no sense.
void check_settings(const StepSettings& settings);

// The number of updates per epoch, over all train loaders; at most, if only every n-th batch
// counts.
std::int64_t steps_per_epoch(const data::Loaders& loaders, std::int64_t accumulation_steps,
                             std::int64_t shards, std::int64_t every = 1);

// What a step updates, and what it leaves alone.
struct StepParts {
  std::vector<TrainedReplica> trained;  // at least one
  ModelBuffers& buffers;                // of all networks
  Engine& engine;                       // its hooks are called
  // The parameters of other steps. They must not require gradients during this one.
  std::vector<torch::Tensor> others = {};
  optim::GradScaler* scaler = nullptr;  // of the run, if the loss is scaled
  // Of the device. Then an update does not wait for the norm of its gradients. Null: it does.
  DeviceCopies* copies = nullptr;
};

// For each global batch: call begin_batch(); for each of this worker's shards call begin_shard(),
// backward() if the shard has samples, and end_shard(); then call update() if due().
class TrainStep {
 public:
  TrainStep(StepParts parts, StepSettings settings);

  const std::vector<torch::Tensor>& others() const { return parts_.others; }

  struct GlobalBatch {
    std::int64_t samples = 0;     // of all shards
    std::int64_t batch_size = 1;  // the size of a full shard
    bool last = false;            // no batch follows
  };
  void begin_batch(const GlobalBatch& batch);

  // `samples` of the loader are in the shard. Its batch may have more or fewer: a transform of
  // batches, or a collate, may add some and leave some out.
  void begin_shard(int local, std::int64_t samples);
  // Adds the gradient of `loss` of a batch with `samples` samples. Throws ConfigError for a loss of
  // kMixed if batches are split, and if some losses are sums and others are means.
  void backward(const torch::Tensor& loss, const LossOver& over, std::int64_t samples);
  void end_shard(int local);

  // Whether the batches added so far are enough for an update, or `last` says that no more follow.
  bool due(bool last) const;

  // Collective. Updates the model with the mean gradient over all samples of all workers; each
  // sample counts the same, whatever the size of its batch. If the losses were declared as means
  // over something else, the mean is over that, over all workers and batches of the update. If the
  // losses are sums, the gradient is the sum. Clipping applies to the result. Adds "gradient/norm"
  // to `metrics` if clip_grad_norm or log_gradient_norm is set.
  //
  // With a scaler, the update is skipped on all ranks if the sum of the gradients is not finite.
  // Adds "gradient/scale", with which the gradients were computed, and "gradient/skipped", 0 or 1.
  // A skipped update has no norm. The caller adjusts the scaler when the updates of all phases are
  // done. `observe`, if all ranks pass it, is as in Replica::Update; it is not called for a skipped
  // update.
  //
  // If the parts have copies of the device, the norm is added to `late` instead.
  using Observe = std::function<void(const SummedGradients& gradients)>;
  void update(Metrics& metrics, std::vector<LateMetric>& late, const Observe& observe = {});
  // The same, but waits for late metrics.
  void update(Metrics& metrics, const Observe& observe = {});

  // Whether gradients are reduced while backward() runs. This may change when a parameter is
  // unfrozen.
  bool sends_gradients_early() const;

  // Whether no gradient waits for an update.
  bool between_steps() const { return batches_ == 0; }

 private:
  // Whether a batch, or the set of batches of an update, is split into parts.
  bool is_split() const { return settings_.accumulation_steps > 1 || settings_.shards > 1; }
  bool needs_gradients() const;  // whether a parameter requires one
  void note_weight(double weight);
  // The factor that turns the sum of all gradients into a mean. `weights` are those of all shards,
  // or empty if every shard's weight is its number of samples.
  double scale_of(std::span<const double> weights) const;

  StepParts parts_;
  StepSettings settings_;
  GlobalBatch batch_;
  std::int64_t batches_ = 0;
  std::int64_t samples_ = 0;   // of all workers, in these batches
  std::size_t local_ = 0;      // the current shard
  std::int64_t expected_ = 0;  // its samples, as samples_ counts them
  // The weight that each of this worker's shards has contributed: what its losses are means over;
  // kSum if they are sums; 0 if nothing was added.
  static constexpr double kSum = -1;
  std::vector<double> own_;
};

}  // namespace lockstep
