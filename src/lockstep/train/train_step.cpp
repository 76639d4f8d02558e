#include "lockstep/train/train_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/sharding.h"
#include "lockstep/train/state.h"

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
    if (limit && settings.clip_grad) {
      throw ConfigError(
          "clip_grad: expected one way of clipping, got {} = {}, too, and the order would be "
          "unclear; do both in the function, or leave one out",
          name, *limit);
    }
  }
}

namespace {

void check_kinds(bool sums, bool means) {
  if (!sums || !means) return;
  throw ConfigError(
      "some losses of one update are sums and others are means, so they have no common gradient: "
      "use the same kind in every batch (state.set_loss)");
}

}  // namespace

std::int64_t steps_per_epoch(const data::Loaders& loaders, std::int64_t accumulation_steps,
                             std::int64_t shards, std::int64_t every) {
  std::int64_t steps = 0;
  for (const auto& [name, loader] : loaders) {
    if (!is_train_loader(name)) continue;
    const std::int64_t batches = (data::epoch_size(loader, shards).batches + every - 1) / every;
    steps += (batches + accumulation_steps - 1) / accumulation_steps;
  }
  return steps;
}

TrainStep::TrainStep(StepParts parts, StepSettings settings)
    : parts_(std::move(parts)),
      settings_(std::move(settings)),
      own_(static_cast<std::size_t>(parts_.trained.front().replica.shards().count()), 0.0) {
  check_settings(settings_);
}

void TrainStep::begin_batch(const GlobalBatch& batch) {
  batch_ = batch;
  ++batches_;
  samples_ += batch.samples;
}

void TrainStep::begin_shard(int local, std::int64_t samples) {
  local_ = static_cast<std::size_t>(local);
  expected_ = samples;
  for (const auto& item : parts_.trained) item.replica.begin_shard(local, due(batch_.last));
  parts_.buffers.begin_shard(local);
}

void TrainStep::backward(const torch::Tensor& loss, const LossOver& over, std::int64_t samples) {
  using Kind = LossOver::Kind;
  if (over.kind == Kind::kMixed && is_split()) {
    throw ConfigError(
        "the loss is a sum of terms that are means over different things, so the losses of {} "
        "cannot be combined into one: give all terms the same weight in state.set_loss and "
        "state.add_loss, or train with one shard and without accumulation",
        settings_.shards > 1 ? fmt::format("{} shards", settings_.shards)
                             : fmt::format("{} batches", settings_.accumulation_steps));
  }
  const double weight = over.kind == Kind::kWeight ? over.weight : static_cast<double>(samples);
  note_weight(over.kind == Kind::kSum ? kSum : weight);
  // A mean over nothing may be NaN, and NaN times zero is NaN, too.
  if (weight == 0 && !std::isfinite(loss.item<double>())) {
    if (!settings_.sync_bn) return;
    throw ConfigError(
        "sync_bn: the loss of this worker's samples is {} and has weight 0, so it has no gradient, "
        "but batch norm over all workers needs one from each: give state.set_loss a loss that is 0 "
        "there, for example a sum divided by max(weight, 1)",
        loss.item<double>());
  }
  if (!loss.requires_grad() && !needs_gradients()) return;  // all is frozen at the moment
  for (const auto& item : parts_.trained) item.replica.before_backward();
  if (weight == 0) {
    parts_.engine.backward(loss, torch::zeros_like(loss));
    return;
  }
  // The weight is counted in full shards: for a full shard it is 1, and no factor is needed.
  const double share = !is_split() || over.kind == Kind::kSum
                           ? 1.0
                           : weight / static_cast<double>(batch_.batch_size);
  const double factor = parts_.scaler == nullptr ? share : share * parts_.scaler->scale();
  parts_.engine.backward(loss, factor == 1 ? torch::Tensor() : torch::full_like(loss, factor));
}

bool TrainStep::needs_gradients() const {
  for (const auto& item : parts_.trained) {
    for (const auto& buffer : item.replica.parameters().buffers()) {
      for (const auto& slice : buffer.slices) {
        if (slice.parameter.requires_grad()) return true;
      }
    }
  }
  return false;
}

void TrainStep::note_weight(double weight) {
  if (weight != static_cast<double>(expected_)) {
    for (const auto& item : parts_.trained) item.replica.mark_weights();
  }
  if (weight == 0) return;
  double& own = own_[local_];
  const bool other_kind = own != 0 && (own == kSum) != (weight == kSum);
  if (other_kind) check_kinds(true, true);
  own = weight == kSum ? kSum : own + weight;
}

void TrainStep::end_shard(int local) {
  for (const auto& item : parts_.trained) item.replica.end_shard(local);
  parts_.buffers.end_shard(local);
}

bool TrainStep::sends_gradients_early() const {
  return std::ranges::any_of(parts_.trained,
                             [](const auto& item) { return item.replica.overlaps(); });
}

bool TrainStep::due(bool last) const {
  return batches_ > 0 && (last || batches_ == settings_.accumulation_steps);
}

double TrainStep::scale_of(std::span<const double> weights) const {
  double total = weights.empty() ? static_cast<double>(samples_) : 0;
  bool sums = false;
  for (const double weight : weights) {
    if (weight == kSum) {
      sums = true;
    } else {
      total += weight;
    }
  }
  check_kinds(sums, total > 0);
  if (sums || !is_split()) return 1.0;
  return total > 0 ? 1.0 / (total / static_cast<double>(batch_.batch_size)) : 0.0;
}

void TrainStep::update(Metrics& metrics, const Observe& observe) {
  std::vector<LateMetric> late;
  update(metrics, late, observe);
  for (const auto& [name, value] : late) metrics[name] = value->get().item<double>();
}

void TrainStep::update(Metrics& metrics, std::vector<LateMetric>& late, const Observe& observe) {
  parts_.engine.before_step();
  const double unscaled = parts_.scaler == nullptr ? 1.0 : 1.0 / parts_.scaler->scale();
  const double factor = parts_.engine.gradient_factor() * unscaled;
  const UpdateResult result = lockstep::update(
      parts_.trained,
      {.weights = own_,
       .scale_of = [&](std::span<const double> weights) { return scale_of(weights) * factor; },
       .clip_value = settings_.clip_grad_value,
       .clip_norm = settings_.clip_grad_norm,
       .wants_norm = settings_.log_gradient_norm,
       .norm_stays = parts_.copies != nullptr,
       .skip_non_finite = parts_.scaler != nullptr,
       .clip = settings_.clip_grad,
       .observe = observe,
       .buffers = &parts_.buffers});
  constexpr const char* kNorm = "gradient/norm";
  if (result.norm) metrics[kNorm] = *result.norm;
  if (result.late_norm.defined()) {
    late.push_back({.name = kNorm, .value = parts_.copies->read(result.late_norm)});
  }
  if (parts_.scaler != nullptr) {
    metrics["gradient/scale"] = parts_.scaler->scale();
    metrics["gradient/skipped"] = result.skipped ? 1 : 0;
    parts_.scaler->note_update(result.skipped);
  }
  batches_ = 0;
  samples_ = 0;
  std::ranges::fill(own_, 0.0);
  parts_.engine.after_step();
}

}  // namespace lockstep
