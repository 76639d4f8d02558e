#include "lockstep/train/checkpoint_series.h"

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpointer.h"

namespace lockstep {
namespace {

constexpr const char* kAskedBy = "CheckpointCallback";

Selection checkpoint_selection(const CheckpointOptions& options, const RunState& run) {
  return selection_for(
      run, {.metric = options.metric, .minimize = options.minimize, .asked_by = kAskedBy});
}

}  // namespace

void check_checkpoints(const CheckpointOptions& options) {
  if (options.save_n_best < 0) {
    throw ConfigError("{}: save_n_best: expected 0 or more, got {}", kAskedBy, options.save_n_best);
  }
  if (options.save_every_batches < 0) {
    throw ConfigError("{}: save_every_batches: expected 0 or more, got {}", kAskedBy,
                      options.save_every_batches);
  }
  if (options.save_every_batches > 0 && options.mode == CheckpointMode::kModel) {
    throw ConfigError(
        "{}: save_every_batches makes sense with full checkpoints only: weights "
        "alone cannot be resumed",
        kAskedBy);
  }
}

void check_checkpoints(const CheckpointOptions& options, const RunState& run) {
  if (!options.folder && !run.logdir) {
    throw ConfigError("{}: set its folder, or the run's logdir", kAskedBy);
  }
  checkpoint_selection(options, run);
  if (options.mode != CheckpointMode::kFull) return;
  for (const auto& [name, optimizer] : run.optimizers) optimizer->check_state();
}

CheckpointSeries::CheckpointSeries(const CheckpointOptions& options, Checkpointer& checkpointer,
                                   State& state)
    : options_(options),
      checkpointer_(checkpointer),
      state_(state),
      selection_(checkpoint_selection(options, state)) {
  if (!state.comm->is_primary()) return;
  store_.emplace(checkpoint::StoreOptions{
      .folder = options_.folder ? *options_.folder : checkpoint::folder_in(*state.logdir),
      .keep_best = options_.save_n_best,
      .better = selection_.better()});
}

void CheckpointSeries::after_step() {
  check_optimizers_once();
  if (options_.save_every_batches == 0) return;
  // While gradients wait for a later batch, the save waits, too.
  if (++unsaved_batches_ < options_.save_every_batches || !state_.can_snapshot) return;
  unsaved_batches_ = 0;
  save_last();
}

// Some optimizers have a state only after their first step. An error now costs one batch; an error
// at the first checkpoint would cost an epoch.
void CheckpointSeries::check_optimizers_once() {
  if (options_.mode != CheckpointMode::kFull || !store_) return;
  for (const auto& name : state_.stepped) {
    if (checked_.insert(name).second) state_.optimizers[name]->check_state();
  }
}

void CheckpointSeries::after_epoch() {
  if (!state_.can_snapshot) return;  // a callback before this one failed
  unsaved_batches_ = 0;              // on every rank, because all ranks take part in a snapshot
  if (!store_) return;
  const std::int64_t epoch = state_.progress.epoch;
  // Without a score it is not among the best.
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double score = selection_.key
                           ? metric_if_run(state_, *selection_.key, kAskedBy).value_or(none)
                           : static_cast<double>(epoch);
  store_->save_epoch({.epoch = epoch, .score = score, .metrics = state_.epoch_metrics, .path = {}},
                     [this] { return content(); });
  publish();
  checkpointer_.notify_written();
}

void CheckpointSeries::after_exception() {
  if (!state_.can_snapshot || options_.mode == CheckpointMode::kModel) return;
  try {
    std::rethrow_exception(state_.exception);
  } catch (const Interrupted&) {
    save_last();
  } catch (...) {
    // After an error nothing is saved: the state may be wrong.
  }
}

void CheckpointSeries::save_last() {
  const StateDict whole = content();
  if (!store_) return;
  store_->save_last(whole);
  publish_last();
  checkpointer_.notify_written();
}

StateDict CheckpointSeries::content() const {
  if (options_.mode == CheckpointMode::kFull) return checkpointer_.snapshot();
  return {{"model_state_dict", state_.model.state()},
          {"epoch", state_.progress.epoch},
          {"epoch_metrics", checkpoint::to_state(state_.epoch_metrics)}};
}

// The run may choose its best epoch by another metric. Its checkpoint is named only if both have
// the same best epoch.
void CheckpointSeries::publish() const {
  const auto& best = store_->best();
  const bool same = !best.empty() && best.front().epoch == state_.best.epoch;
  state_.best_checkpoint = same ? std::optional(store_->best_path()) : std::nullopt;
  if (std::filesystem::exists(store_->last_path())) publish_last();
}

void CheckpointSeries::publish_last() const {
  state_.last_checkpoint = store_->last_path();
  state_.last_is_resumable = options_.mode == CheckpointMode::kFull;
}

StateDict CheckpointSeries::state() const {
  return store_ ? store_->state() : StateDict();
}

void CheckpointSeries::load_state(const StateDict& state) {
  if (!store_) return;
  store_->load_state(state, [this](std::int64_t epoch, const EpochMetrics& metrics) {
    return selection_.score(epoch, metrics);
  });
  publish();
}

}  // namespace lockstep
