#include "lockstep/runner/train_step.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/sharding.h"
#include "lockstep/runner/state.h"

namespace lockstep {

void check_settings(const StepSettings& settings) {
  if (settings.accumulation_steps < 1) {
    throw ConfigError("accumulation_steps: expected 1 or more, got {}",
                      settings.accumulation_steps);
  }
  for (const auto& [name, limit] : {std::pair("clip_grad_norm", settings.clip_grad_norm),
                                    std::pair("clip_grad_value", settings.clip_grad_value)}) {
    // Written so that NaN is refused, too.
    if (limit && !(*limit > 0)) {
      throw ConfigError("{}: expected a positive number, got {}", name, *limit);
    }
  }
}

std::int64_t steps_per_epoch(const data::Loaders& loaders, std::int64_t accumulation_steps,
                             std::int64_t shards) {
  std::int64_t steps = 0;
  for (const auto& [name, loader] : loaders) {
    if (!is_train_loader(name)) continue;
    const std::int64_t batches = data::epoch_size(loader, shards).batches;
    steps += (batches + accumulation_steps - 1) / accumulation_steps;
  }
  return steps;
}

TrainStep::TrainStep(Replica& replica, optim::Optimizer& optimizer, StepSettings settings)
    : replica_(replica),
      optimizer_(optimizer),
      settings_(settings),
      own_(static_cast<std::size_t>(replica.shards().count()), 0.0) {
  check_settings(settings_);
}

void TrainStep::begin_batch(const GlobalBatch& batch) {
  batch_ = batch;
  ++batches_;
  weight_ += static_cast<double>(batch.samples) / static_cast<double>(batch.batch_size);
}

void TrainStep::begin_shard(int local) {
  local_ = static_cast<std::size_t>(local);
  replica_.begin_shard(local, due(batch_.last));
}

void TrainStep::backward(const torch::Tensor& loss, double weight) {
  replica_.before_backward();
  if (!is_weighted() || settings_.mean == LossMean::kNone) {
    loss.backward();
    return;
  }
  if (settings_.mean == LossMean::kTargets) {
    own_[local_] += weight;
  } else {
    weight /= static_cast<double>(batch_.batch_size);  // in full shards
  }
  if (weight == 1) {
    loss.backward();
  } else {
    loss.backward(torch::full_like(loss, weight));
  }
}

void TrainStep::end_shard(int local) {
  replica_.end_shard(local);
}

bool TrainStep::due(bool last) const {
  return batches_ > 0 && (last || batches_ == settings_.accumulation_steps);
}

double TrainStep::scale() {
  if (!is_weighted() || settings_.mean == LossMean::kNone) return 1.0;
  const double weight =
      settings_.mean == LossMean::kTargets ? replica_.sum_over_shards(own_) : weight_;
  return weight > 0 ? 1.0 / weight : 0.0;
}

void TrainStep::update(Metrics& metrics) {
  const auto norm = replica_.update(optimizer_, {.scale = scale(),
                                                 .clip_value = settings_.clip_grad_value,
                                                 .clip_norm = settings_.clip_grad_norm});
  if (norm) metrics["gradient/norm"] = *norm;
  batches_ = 0;
  weight_ = 0;
  std::ranges::fill(own_, 0.0);
}

}  // namespace lockstep
