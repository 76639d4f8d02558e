#include "lockstep/train/checkpoint_series.h"

#include <limits>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
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

bool saves_inside_epochs(const CheckpointOptions& options) {
  return options.save_every_batches > 0 || options.save_every_steps > 0;
}

// The loader's metric that a field of a file's name means: "valid_loss" or "valid/loss". Nothing
// for the other fields.
std::optional<MetricKey> metric_of(const std::string& field, const RunState& run) {
  if (field == "epoch" || field == "step" || field == "score") return std::nullopt;
  const auto loaders = run.loaders.names();
  std::optional<MetricKey> found;
  for (const std::string& loader : loaders) {
    const bool fits = field.size() > loader.size() + 1 && field.starts_with(loader) &&
                      (field[loader.size()] == '_' || field[loader.size()] == '/');
    // Of "valid" and "valid_2", the longer one is meant.
    if (!fits || (found && found->loader.size() > loader.size())) continue;
    found = MetricKey{.loader = loader, .metric = field.substr(loader.size() + 1)};
  }
  if (found) return found;
  throw ConfigError(
      "{}: filename: {{{}}}: expected epoch, step, score, or a loader and its metric such as "
      "{}_loss; the loaders are {}",
      kAskedBy, field, loaders.empty() ? "valid" : loaders.back(), join(loaders, ", "));
}

void check_filename(const CheckpointOptions& options) {
  if (!options.filename) return;
  const checkpoint::NamePattern pattern(*options.filename);
  if (options.keep_all && saves_inside_epochs(options) && !pattern.has("step")) {
    throw ConfigError(
        "{}: filename '{}': expected {{step}} in it, because several files of an epoch are kept",
        kAskedBy, *options.filename);
  }
}

}  // namespace

void check_checkpoints(const CheckpointOptions& options) {
  const Check check(kAskedBy);
  const auto not_negative = [&](const char* name, std::int64_t value) {
    check.require(value >= 0, name, "0 or more", value);
  };
  not_negative("save_n_best", options.save_n_best);
  not_negative("save_every_epochs", options.save_every_epochs);
  not_negative("save_every_batches", options.save_every_batches);
  not_negative("save_every_steps", options.save_every_steps);
  check.not_negative("min_delta", options.min_delta);
  if (saves_inside_epochs(options) && options.mode == CheckpointMode::kModel && !options.keep_all) {
    throw ConfigError(
        "{}: {} makes sense with full checkpoints only, or with keep_all: weights alone cannot be "
        "resumed",
        kAskedBy, options.save_every_batches > 0 ? "save_every_batches" : "save_every_steps");
  }
  check_filename(options);
}

void check_checkpoints(const CheckpointOptions& options, const RunState& run) {
  if (options.mode == CheckpointMode::kNone) return;
  if (!options.folder && !run.logdir) {
    throw ConfigError("{}: set its folder, or the run's logdir", kAskedBy);
  }
  const Selection selection = checkpoint_selection(options, run);
  if (options.min_delta > 0 && !selection.key) {
    throw ConfigError("{}: min_delta: expected a metric or the run's valid_loader with it",
                      kAskedBy);
  }
  if (options.filename) {
    for (const auto& field : checkpoint::NamePattern(*options.filename).fields()) {
      if (const auto key = metric_of(field, run)) check_metric_key(run, *key, kAskedBy);
    }
  }
  if (options.mode != CheckpointMode::kFull) return;
  for (const auto& [name, optimizer] : run.optimizers) optimizer->check_state();
}

CheckpointSeries::CheckpointSeries(const CheckpointOptions& options, Checkpointer& checkpointer,
                                   State& state)
    : options_(options),
      checkpointer_(checkpointer),
      state_(state),
      selection_(checkpoint_selection(options, state)) {
  if (options_.save_every_steps > 0) {
    step_saves_ = state.progress.update_step / options_.save_every_steps;
  }
  if (!state.comm->is_primary() || options_.mode == CheckpointMode::kNone) return;
  if (options_.filename) pattern_.emplace(*options_.filename);
  store_.emplace(checkpoint::StoreOptions{
      .folder = options_.folder ? *options_.folder : checkpoint::folder_in(*state.logdir),
      .keep_best = options_.save_n_best,
      .better = selection_.better(),
      .min_delta = options_.min_delta,
      .keep_all = options_.keep_all});
}

// On all ranks alike.
bool CheckpointSeries::is_due_inside_epoch() const {
  const std::int64_t steps = options_.save_every_steps;
  return (options_.save_every_batches > 0 && unsaved_batches_ >= options_.save_every_batches) ||
         (steps > 0 && state_.progress.update_step / steps > step_saves_);
}

void CheckpointSeries::after_step() {
  if (options_.mode == CheckpointMode::kNone) return;
  if (options_.mode == CheckpointMode::kFull && store_) checkpointer_.check_optimizers_once();
  if (options_.save_every_batches > 0) ++unsaved_batches_;
  // While gradients wait for a later batch, the save waits, too.
  if (state_.can_snapshot && is_due_inside_epoch()) {
    note_save();
    save_inside(Inside::kDue);
  } else if (store_ && !prepared_ && !state_.stepped.empty()) {
    prepare_memory();
  }
}

// On every rank, because all ranks take part in a snapshot inside an epoch.
void CheckpointSeries::note_save() {
  unsaved_batches_ = 0;
  if (options_.save_every_steps > 0) {
    step_saves_ = state_.progress.update_step / options_.save_every_steps;
  }
  has_unsaved_epoch_ = false;
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
  if (options_.mode == CheckpointMode::kNone) return;
  if (!state_.can_snapshot) return;  // a callback before this one failed
  const std::int64_t every = options_.save_every_epochs;
  const bool is_due = every > 0 && state_.progress.epoch % every == 0;
  has_unsaved_epoch_ = !is_due;
  if (is_due) save_epoch();
}

void CheckpointSeries::after_run() {
  if (has_unsaved_epoch_) save_epoch();
}

void CheckpointSeries::save_epoch() {
  note_save();
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
      {.epoch = epoch, .score = score, .metrics = state_.epoch_metrics, .path = name_of(score)});
  begin_writing(std::move(write), content());
}

// Empty: the usual name.
std::filesystem::path CheckpointSeries::name_of(double score) const {
  if (!pattern_) return {};
  return pattern_->name([&](const std::string& field) -> checkpoint::NamePattern::Value {
    if (field == "epoch") return state_.progress.epoch;
    if (field == "step") return state_.progress.update_step;
    if (field == "score") return score;
    // Inside an epoch, some loaders have no metrics yet.
    const auto value = find_metric(state_.epoch_metrics, *metric_of(field, state_));
    return value.value_or(std::numeric_limits<double>::quiet_NaN());
  });
}

void CheckpointSeries::after_exception() {
  if (!state_.can_snapshot || options_.mode != CheckpointMode::kFull) return;
  try {
    std::rethrow_exception(state_.exception);
  } catch (const Interrupted&) {
    save_inside(Inside::kInterrupted);
    finish_writing();  // the process may end after this
  } catch (...) {
    // After an error nothing is saved: the state may be wrong.
  }
}

void CheckpointSeries::save_inside(Inside why) {
  std::optional<checkpoint::Store::Write> write;
  if (store_) {
    // The other ranks wait in content() meanwhile.
    const comm::AloneScope alone(*state_.comm);
    finish_writing();
    const bool is_kept = why == Inside::kDue && options_.keep_all;
    const double none = std::numeric_limits<double>::quiet_NaN();
    write = is_kept ? store_->decide_step({.epoch = state_.progress.epoch,
                                           .metrics = state_.epoch_metrics,
                                           .path = name_of(none),
                                           .step = state_.progress.update_step})
                    : store_->decide_last();
  }
  StateDict whole = content();
  if (store_) begin_writing(std::move(*write), std::move(whole));
}

// In the memory of the content before, which must not be needed any more.
StateDict CheckpointSeries::content() {
  if (options_.mode == CheckpointMode::kFull) return checkpointer_.snapshot(&copy_);
  if (!store_) return {};
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

// The best of the files. If it is chosen as the run chooses its best epoch, it may still be of
// another epoch: because of min_delta, or because the best epoch was not saved here. If it is
// chosen by another metric, it is named only if both have the same best epoch.
std::optional<std::filesystem::path> CheckpointSeries::best_of_run() const {
  const checkpoint::Kept* const best = store_->best_epoch();
  const Selection& of_run = state_.selection;
  const bool is_same = selection_.key == of_run.key && selection_.better() == of_run.better();
  if (best == nullptr || (!is_same && best->epoch != state_.best.epoch)) return std::nullopt;
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
  if (has_unsaved_epoch_) state.set("unsaved_epoch", true);
  return state;
}

void CheckpointSeries::load_state(const StateDict& state) {
  // On every rank, because all ranks take part in the next save. An older file does not have it.
  unsaved_batches_ = state.get_or<std::int64_t>("unsaved_batches", 0);
  has_unsaved_epoch_ = state.get_or("unsaved_epoch", false);
  if (!store_) return;
  store_->load_state(state, [this](std::int64_t epoch, const EpochMetrics& metrics) {
    return selection_.score(epoch, metrics);
  });
  state_.best_checkpoint = best_of_run();
  if (std::filesystem::exists(store_->last_path())) publish_last();
}

}  // namespace lockstep
