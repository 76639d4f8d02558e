#include "lockstep/callback/checkpoint.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {
constexpr const char* kCheckpoint = "CheckpointCallback";
}

CheckpointCallback::CheckpointCallback(CheckpointCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.save_n_best < 0) {
    throw ConfigError("{}: save_n_best: expected 0 or more, got {}", kCheckpoint,
                      options_.save_n_best);
  }
  if (options_.save_every_batches < 0) {
    throw ConfigError("{}: save_every_batches: expected 0 or more, got {}", kCheckpoint,
                      options_.save_every_batches);
  }
  if (options_.save_every_batches > 0 && options_.mode == CheckpointMode::kModel) {
    throw ConfigError(
        "{}: save_every_batches makes sense with full checkpoints only: weights "
        "alone cannot be resumed",
        kCheckpoint);
  }
}

void CheckpointCallback::check(const State& state) const {
  if (!options_.folder && !state.logdir) {
    throw ConfigError("{}: set its folder, or the run's logdir", kCheckpoint);
  }
  if (options_.metric) check_metric_key(state, *options_.metric, kCheckpoint);
  if (options_.mode == CheckpointMode::kFull && state.optimizer != nullptr) {
    state.optimizer->check_state();
  }
  minimizes(state);
}

bool CheckpointCallback::minimizes(const State& state) const {
  // Without a metric the score is the epoch itself: the newest is the best.
  if (!options_.metric && !state.selection.key) return false;
  if (!options_.minimize && !options_.metric) return state.selection.minimize;
  return lockstep::minimizes(state, {.said = options_.minimize,
                                     .metric = options_.metric ? options_.metric->metric : "",
                                     .asked_by = kCheckpoint,
                                     .option = "its minimize"});
}

void CheckpointCallback::on_run_start(State& state) {
  metric_ = options_.metric ? options_.metric : state.selection.key;
  unsaved_batches_ = 0;
  optimizer_checked_ = false;
  if (!state.comm->is_primary()) return;
  store_.emplace(checkpoint::StoreOptions{
      .folder = options_.folder ? *options_.folder : checkpoint::folder_in(*state.logdir),
      .keep_best = options_.save_n_best,
      .minimize = minimizes(state)});
  const auto loaded = std::exchange(loaded_, std::nullopt);
  if (!loaded || state.progress.epoch == 0) return;
  store_->load_state(*loaded, [this](std::int64_t epoch, const EpochMetrics& metrics) {
    if (!metric_) return std::optional(static_cast<double>(epoch));
    const auto loader = metrics.find(metric_->loader);
    if (loader == metrics.end()) return std::optional<double>();
    const auto score = loader->second.find(metric_->metric);
    return score == loader->second.end() ? std::nullopt : std::optional(score->second);
  });
  publish(state);
}

// The run may choose its best epoch by another metric. Its checkpoint is named only if both have
// the same best epoch.
void CheckpointCallback::publish(State& state) const {
  const auto& best = store_->best();
  const bool same = !best.empty() && best.front().epoch == state.best.epoch;
  state.best_checkpoint = same ? std::optional(store_->best_path()) : std::nullopt;
  if (std::filesystem::exists(store_->last_path())) publish_last(state);
}

void CheckpointCallback::on_step(State& state) {
  check_optimizer_once(state);
  if (options_.save_every_batches == 0) return;
  // While gradients wait for a later batch, the save waits, too.
  if (++unsaved_batches_ < options_.save_every_batches || !state.can_snapshot) return;
  unsaved_batches_ = 0;
  save_last(state);
}

// Some optimizers have a state only after their first step. An error now costs one batch; an error
// at the first checkpoint would cost an epoch.
void CheckpointCallback::check_optimizer_once(const State& state) {
  const bool stepped = state.is_train && state.can_snapshot;
  if (optimizer_checked_ || !stepped || options_.mode != CheckpointMode::kFull || !store_) return;
  state.optimizer->check_state();
  optimizer_checked_ = true;
}

void CheckpointCallback::save_last(State& state) {
  const StateDict whole = content(state);
  if (!store_) return;
  store_->save_last(whole);
  publish_last(state);
}

void CheckpointCallback::publish_last(State& state) const {
  state.last_checkpoint = store_->last_path();
  state.last_is_resumable = options_.mode == CheckpointMode::kFull;
}

void CheckpointCallback::on_epoch_end(State& state) {
  if (!state.can_snapshot) return;  // a callback before this one failed
  unsaved_batches_ = 0;             // on every rank, because all ranks take part in a snapshot
  if (!store_) return;
  const double score = metric_ ? metric_value(state, *metric_, kCheckpoint)
                               : static_cast<double>(state.progress.epoch);
  store_->save_epoch(
      {.epoch = state.progress.epoch, .score = score, .metrics = state.epoch_metrics, .path = {}},
      [&] { return content(state); });
  publish(state);
}

void CheckpointCallback::on_exception(State& state) {
  if (!state.can_snapshot || options_.mode == CheckpointMode::kModel) return;
  try {
    std::rethrow_exception(state.exception);
  } catch (const Interrupted&) {
    save_last(state);
  } catch (...) {
    // After an error nothing is saved: the state may be wrong.
  }
}

StateDict CheckpointCallback::content(const State& state) const {
  if (options_.mode == CheckpointMode::kFull) return state.snapshot();
  return {{"model_state_dict", state.model.state()},
          {"epoch", state.progress.epoch},
          {"epoch_metrics", checkpoint::to_state(state.epoch_metrics)}};
}

StateDict CheckpointCallback::state() const {
  return store_ ? store_->state() : StateDict();
}

void CheckpointCallback::load_state(const StateDict& state) {
  loaded_ = state;
}

}  // namespace lockstep
