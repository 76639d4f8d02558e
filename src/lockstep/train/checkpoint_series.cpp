#include "lockstep/train/checkpoint_series.h"

#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/state/copy.h"
#include "lockstep/train/averaged_weights.h"
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
  if (options_.mode == CheckpointMode::kFull && store_) checkpointer_.check_optimizers_once();
  if (options_.save_every_batches > 0) ++unsaved_batches_;
  // While gradients wait for a later batch, the save waits, too.
  const bool is_due = options_.save_every_batches > 0 && state_.can_snapshot &&
                      unsaved_batches_ >= options_.save_every_batches;
  if (is_due) {
    unsaved_batches_ = 0;
    save_last();
  } else if (store_ && !prepared_ && !state_.stepped.empty()) {
    prepare_memory();
  }
}

// After the first step, because some optimizers have a state only then.
void CheckpointSeries::prepare_memory() {
  StateDict large{{"model", state_.model.view_state()}};
  if (state_.averaged != nullptr && options_.mode == CheckpointMode::kFull) {
    large.set("trained", state_.averaged->trained());
  }
  if (options_.mode == CheckpointMode::kFull) {
    StateList optimizers;
    for (const auto& [name, optimizer] : state_.optimizers) {
      optimizers.emplace_back(optimizer->view_state());
    }
    large.set("optimizers", std::move(optimizers));
  }
  prepared_ = true;
  writer_.submit([this, large = std::move(large)] { copy_ = memory_for_copy(large); });
}

void CheckpointSeries::after_epoch() {
  if (!state_.can_snapshot) return;  // a callback before this one failed
  unsaved_batches_ = 0;              // on every rank, because all ranks take part in a snapshot
  if (!store_) return;
  finish_writing();
  const std::int64_t epoch = state_.progress.epoch;
  // Without a score it is not among the best.
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double score = selection_.key
                           ? metric_if_run(state_, *selection_.key, kAskedBy).value_or(none)
                           : static_cast<double>(epoch);
  // Decided first, so that the list of the best in the file includes this epoch.
  auto write = store_->decide_epoch(
      {.epoch = epoch, .score = score, .metrics = state_.epoch_metrics, .path = {}});
  begin_writing(std::move(write), content());
}

void CheckpointSeries::after_exception() {
  if (!state_.can_snapshot || options_.mode == CheckpointMode::kModel) return;
  try {
    std::rethrow_exception(state_.exception);
  } catch (const Interrupted&) {
    save_last();
    finish_writing();  // the process may end after this
  } catch (...) {
    // After an error nothing is saved: the state may be wrong.
  }
}

void CheckpointSeries::save_last() {
  if (store_) {
    // The other ranks wait in content() meanwhile.
    const comm::AloneScope alone(*state_.comm);
    finish_writing();
  }
  StateDict whole = content();
  if (store_) begin_writing(store_->decide_last(), std::move(whole));
}

// In the memory of the content before, which must not be needed any more.
StateDict CheckpointSeries::content() {
  if (options_.mode == CheckpointMode::kFull) return checkpointer_.snapshot(&copy_);
  return copied({{"model_state_dict", weights_for_use(state_)},
                 {"epoch", state_.progress.epoch},
                 {"epoch_metrics", checkpoint::to_state(state_.epoch_metrics)}},
                &copy_);
}

void CheckpointSeries::begin_writing(checkpoint::Store::Write write, StateDict whole) {
  copy_ = std::move(whole);
  prepared_ = true;
  writer_.submit([this, write = std::move(write)] { write(copy_); });
  unreported_ = {.at = {.progress = state_.progress,
                        .inside_epoch = state_.inside_epoch,
                        .epoch_metrics = state_.epoch_metrics},
                 .is_epoch = !state_.inside_epoch,
                 .best = best_of_run()};
}

void CheckpointSeries::report_written() {
  if (unreported_ && writer_.finished()) finish_writing();
}

void CheckpointSeries::finish_writing() {
  const std::optional<Unreported> written = std::exchange(unreported_, std::nullopt);
  writer_.wait();
  if (!written) return;
  if (written->is_epoch) state_.best_checkpoint = written->best;
  publish_last();
  checkpointer_.notify_written(*this, written->at);
}

// The run may choose its best epoch by another metric. Its checkpoint is named only if both have
// the same best epoch.
std::optional<std::filesystem::path> CheckpointSeries::best_of_run() const {
  const auto& best = store_->best();
  if (best.empty() || best.front().epoch != state_.best.epoch) return std::nullopt;
  return store_->best_file();
}

void CheckpointSeries::need_files(bool needed) {
  if (!store_) return;
  if (needed) return store_->need_listed();
  store_->need_nothing();
}

void CheckpointSeries::publish_last() const {
  state_.last_checkpoint = store_->last_path();
  state_.last_is_resumable = options_.mode == CheckpointMode::kFull;
}

StateDict CheckpointSeries::state() const {
  StateDict state = store_ ? store_->state() : StateDict();
  state.set("unsaved_batches", unsaved_batches_);
  return state;
}

void CheckpointSeries::load_state(const StateDict& state) {
  // On every rank, because all ranks take part in the next save. An older file does not have it.
  unsaved_batches_ = state.get_or<std::int64_t>("unsaved_batches", 0);
  if (!store_) return;
  store_->load_state(state, [this](std::int64_t epoch, const EpochMetrics& metrics) {
    return selection_.score(epoch, metrics);
  });
  state_.best_checkpoint = best_of_run();
  if (std::filesystem::exists(store_->last_path())) publish_last();
}

}  // namespace lockstep
