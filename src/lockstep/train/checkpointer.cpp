#include "lockstep/train/checkpointer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/engine/replicas.h"
#include "lockstep/state/copy.h"
#include "lockstep/train/averaged_weights.h"
#include "lockstep/train/loader_pass.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/run_memory.h"
#include "lockstep/train/snapshot.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

// What callbacks and the user's own values remember gets tensors of its own.
void copy_remembered(StateDict& snapshot) {
  for (const char* const key : {"callbacks", "user_state"}) {
    if (snapshot.contains(key)) snapshot.set(key, copied(snapshot.get<StateDict>(key)));
  }
}

}  // namespace

Checkpointer::Checkpointer(const CheckpointerParts& parts)
    : parts_(parts), state_(parts.state), initial_lrs_(parts.initial_lrs) {}

CheckpointSeries& Checkpointer::open(const CheckpointOptions& options,
                                     const std::optional<StateDict>& remembered) {
  series_.push_back(std::make_shared<CheckpointSeries>(options, *this, state_));
  // A callback may still have what a run remembered that failed before it began. A restart may go
  // back to the beginning, and then the folder has files of the failed attempt.
  const bool is_resumed = state_.progress.epoch > 0 || state_.inside_epoch || is_restart_;
  if (remembered && is_resumed) series_.back()->load_state(*remembered);
  if (parts_.memory != nullptr) series_.back()->need_files(true);
  return *series_.back();
}

void Checkpointer::notify_written(const CheckpointSeries& series, const SavedAt& at) {
  // The series have the same order in every attempt of a run, and each writes its files in order.
  const auto found = std::ranges::find(series_, &series, [](const auto& one) { return one.get(); });
  const int number = static_cast<int>(found - series_.begin());
  if (parts_.memory != nullptr) parts_.memory->set_log_stream(1 + number);
  SavedAt now{.progress = std::exchange(state_.progress, at.progress),
              .inside_epoch = std::exchange(state_.inside_epoch, at.inside_epoch),
              .epoch_metrics = std::exchange(state_.epoch_metrics, at.epoch_metrics)};
  // A snapshot would have the progress of then and the weights of now.
  const bool can_snapshot = std::exchange(state_.can_snapshot, false);
  std::exception_ptr error;
  try {
    notify_end(parts_.callbacks, &Callback::on_checkpoint, state_);
  } catch (...) {
    error = std::current_exception();
  }
  if (parts_.memory != nullptr) parts_.memory->set_log_stream(0);
  state_.progress = now.progress;
  state_.inside_epoch = now.inside_epoch;
  state_.epoch_metrics = std::move(now.epoch_metrics);
  if (error) std::rethrow_exception(error);  // can_snapshot stays false, as notify_end says
  state_.can_snapshot = can_snapshot;
}

void Checkpointer::report_written() {
  for (const auto& series : series_) series->report_written();
}

void Checkpointer::save_last_epoch() {
  state_.can_snapshot = true;
  for (const auto& series : series_) series->after_run();
  state_.can_snapshot = false;
}

bool Checkpointer::is_writing() const {
  return std::ranges::any_of(series_, [](const auto& series) { return series->is_writing(); });
}

void Checkpointer::need_files(bool needed) {
  for (const auto& series : series_) series->need_files(needed);
}

void Checkpointer::finish_writing() {
  for (const auto& series : series_) series->finish_writing();
}

void Checkpointer::check_optimizers_once() {
  for (const auto& name : state_.stepped) {
    if (checked_.insert(name).second) state_.optimizers[name]->check_state();
  }
}

namespace {

// Collective. The request of the first rank that has one.
std::optional<std::string> stop_request(const State& state) {
  const auto votes = state.comm->vote(state.stop_reason ? 1 : 0);
  const auto first = std::ranges::find(votes, 1U);
  if (first == votes.end()) return std::nullopt;
  return state.comm->broadcast_bytes(state.stop_reason.value_or(""),
                                     static_cast<int>(first - votes.begin()));
}

}  // namespace

StateDict Checkpointer::snapshot(StateDict* reuse) {
  if (!state_.can_snapshot) {
    throw Error(
        "a snapshot was requested at a point where the run could not be resumed exactly; check "
        "state.can_snapshot first");
  }
  Position position{.finished_epochs = state_.progress.epoch};
  StateDict averages;
  std::optional<std::string> stop_reason;
  if (state_.inside_epoch) {
    stop_reason = stop_request(state_);
    position = {state_.progress.epoch - 1, state_.loader, state_.loader_batch};
    parts_.pass.gather();
    for (const auto& callback : parts_.callbacks) callback->gather(*state_.comm);
    averages = parts_.pass.averages();
  }
  if (!state_.comm->is_primary()) return {};
  const bool logs_inside = state_.inside_epoch && !state_.loggers.empty();
  const auto* const records = logs_inside ? &parts_.journal.entries() : nullptr;
  StateDict made = make_snapshot(state_,
                                 {.position = position,
                                  .rules = rules(),
                                  .averages = averages,
                                  .stop_reason = stop_reason,
                                  .records = records},
                                 parts_.callbacks);
  made.set("lr", by_optimizer(initial_lrs_));
  StateDict documents;
  for (const auto& [name, text] : parts_.options.documents) documents.set(name, text);
  if (documents.size() > 0) made.set("documents", std::move(documents));
  return copied(made, reuse);
}

EpochRules Checkpointer::rules() const {
  return {.phases = parts_.phases, .steps_per_epoch = parts_.options.steps_per_epoch};
}

// Whether the run goes on from anything: the point of a restart, the run before, or a file.
bool Checkpointer::has_start() {
  start_ = parts_.goes_on_from;
  if (state_.restarts > 0) {
    const KeptRun* const point = parts_.memory != nullptr ? parts_.memory->point() : nullptr;
    is_restart_ = state_.comm->vote(point != nullptr ? 1 : 0).front() == 1;
    if (is_restart_) start_ = point;
  }
  return is_restart_ || start_ != nullptr || parts_.options.resume;
}

std::optional<ResumePoint> Checkpointer::resume() {
  if (!has_start()) return std::nullopt;
  std::optional<fs::path> folder;
  if (parts_.options.logdir) folder = checkpoint::folder_in(*parts_.options.logdir);
  const checkpoint::Loaded loaded = load(folder);
  const Restored restored = restore(loaded);
  ResumePoint point{.path = loaded.path,
                    .is_restart = is_restart_,
                    .finished_epochs = restored.position.finished_epochs};
  state_.inside_epoch = !restored.position.loader.empty();
  if (state_.inside_epoch) {
    const auto names = state_.loaders.names();
    point.loader_index = static_cast<std::size_t>(
        std::ranges::find(names, restored.position.loader) - names.begin());
    point.first_batch = restored.position.loader_batches_done;
    point.records = restored.records;
  }
  parts_.replicas.send(parts_.optimizers);
  keep_lrs(loaded.state);
  find_best_of_history(loaded);
  if (parts_.memory != nullptr && !is_restart_) {
    KeptRun first{.snapshot = loaded.state, .best_weights = best_weights_};
    add_unsaved(first.snapshot, parts_.callbacks);
    copy_remembered(first.snapshot);
    parts_.memory->set_first_point(std::move(first));
  }
  if (is_restart_ && start_ != nullptr && start_->stop_reason) {
    state_.stop_reason = start_->stop_reason;
  }
  std::error_code ignored;
  point.in_own_folder = is_restart_ || start_ != nullptr ||
                        (folder && fs::equivalent(loaded.path.parent_path(), *folder, ignored));
  return point;
}

// Only rank 0 reads, because the other ranks may not have access to its disk. They get the parts
// that Replicas::send() does not send.
checkpoint::Loaded Checkpointer::load(const std::optional<fs::path>& folder) const {
  comm::Communicator& comm = *state_.comm;
  checkpoint::Loaded loaded;
  if (start_ != nullptr) {
    loaded = {.state = start_->snapshot, .path = is_restart_ ? "in memory" : "of the last train()"};
  } else if (comm.is_primary()) {
    loaded = checkpoint::load_by_name(*parts_.options.resume, folder);
  }
  // A callback may keep a tensor that it is given, and change it. The run may need this snapshot
  // again.
  if (parts_.memory != nullptr) copy_remembered(loaded.state);
  if (comm.size() == 1) return loaded;
  const StateDict small =
      comm.is_primary() ? without_tensors(loaded.state, state_.optimizers) : StateDict();
  StateDict received = broadcast(small, comm);
  if (!comm.is_primary()) loaded.state = std::move(received);
  return loaded;
}

Restored Checkpointer::restore(const checkpoint::Loaded& loaded) {
  try {
    if (!parts_.options.seed && loaded.state.contains("run")) {
      state_.seed = snapshot_seed(loaded.state);
    }
    if (is_restart_) forget_unsaved(loaded.state, parts_.callbacks);
    Restored restored = restore_snapshot(loaded.state, state_, parts_.callbacks, rules());
    if (!restored.position.loader.empty()) parts_.pass.load_averages(restored.averages);
    return restored;
  } catch (const CheckpointError& error) {
    throw CheckpointError("checkpoint {}: {}", loaded.path.string(), error.what());
  }
}

// Resume keeps the checkpoint's learning rates. Warns if the options ask for others.
void Checkpointer::keep_lrs(const StateDict& snapshot) {
  if (!snapshot.contains("lr")) return;
  for (const auto& [name, value] : Named<double>(initial_lrs_)) {
    const bool several = initial_lrs_.size() > 1;
    const double saved =
        several ? snapshot.get<StateDict>("lr").get<double>(name) : snapshot.get<double>("lr");
    if (saved == value) continue;
    initial_lrs_.set(name, saved);
    // The first attempt has warned.
    if (!state_.comm->is_primary() || is_restart_) continue;
    warn(fmt::format(
        "resume: lr{}: the checkpoint's run began with {}, the options of this run say {}: the "
        "run goes on with the checkpoint's; to start a new run from its weights, use weights "
        "instead of resume",
        several ? " of '" + name + "'" : "", saved, value));
  }
}

void Checkpointer::note_epoch() {
  const Selection& selection = state_.selection;
  if (!selection.key) {
    state_.best = {state_.progress.epoch, std::numeric_limits<double>::quiet_NaN(),
                   state_.epoch_metrics};
    return;
  }
  const auto score = metric_if_run(state_, *selection.key, "valid_metric");
  if (!score || !is_best(*score)) return;
  state_.best = {state_.progress.epoch, *score, state_.epoch_metrics};
  if (parts_.options.load_best_on_end) best_weights_ = copy_for_use();
}

// Collective if there are averaged weights, which only rank 0 has.
StateDict Checkpointer::copy_for_use() const {
  if (state_.averaged == nullptr || !state_.averaged->exists()) return state_.model.state();
  const bool is_primary = state_.comm->is_primary();
  return broadcast(is_primary ? copied(state_.averaged->for_use()) : StateDict(), *state_.comm);
}

bool Checkpointer::is_best(double score) const {
  if (state_.best.epoch == 0) return !std::isnan(score);
  return state_.selection.is_better(score, state_.best.score);
}

// Finds the best epoch before a resume, by the metric of this run. Its weights are in best.pth, if
// that file is still of the same epoch.
void Checkpointer::find_best_of_history(const checkpoint::Loaded& loaded) {
  const Selection& selection = state_.selection;
  for (const auto& [epoch, metrics] : state_.history) {
    if (!selection.key) {
      state_.best = {epoch, std::numeric_limits<double>::quiet_NaN(), metrics};
      continue;
    }
    const auto score = selection.score(epoch, metrics);
    if (score && is_best(*score)) state_.best = {epoch, *score, metrics};
  }
  if (!parts_.options.load_best_on_end || state_.best.epoch == 0) return;
  if (state_.best.epoch == state_.progress.epoch && !state_.inside_epoch) {
    best_weights_ = loaded_for_use(loaded.state);
    return;
  }
  const fs::path best_file = loaded.path.parent_path() / "best.pth";
  StateDict weights = broadcast(weights_of_best(best_file), *state_.comm);
  if (weights.size() > 0) best_weights_ = std::move(weights);
}

// Collective if the snapshot, which was restored, has averaged weights.
StateDict Checkpointer::loaded_for_use(const StateDict& snapshot) const {
  if (!has_averaged_weights(snapshot)) return state_.model.state();
  StateDict weights;
  if (state_.comm->is_primary()) weights = copied(snapshot.get<StateDict>("model_state_dict"));
  return broadcast(weights, *state_.comm);
}

// Empty on the other ranks, and if the file is missing, damaged or of another epoch.
StateDict Checkpointer::weights_of_best(const fs::path& best_file) const {
  if (start_ != nullptr) return start_->best_weights.value_or(StateDict());
  if (!state_.comm->is_primary() || !fs::exists(best_file)) return {};
  StateDict saved;
  try {
    saved = checkpoint::load(best_file);
  } catch (const CheckpointError& error) {
    warn(fmt::format("load_best_on_end: {}", error.what()));
  }
  const bool is_same = saved.contains("run") &&
                       saved.get<StateDict>("run").get<std::int64_t>("epoch") == state_.best.epoch;
  return is_same ? saved.get<StateDict>("model_state_dict") : StateDict();
}

void Checkpointer::load_best() {
  if (!parts_.options.load_best_on_end || state_.best.epoch == state_.progress.epoch) return;
  if (best_weights_) {
    state_.model.load_state(*best_weights_);
  } else if (state_.best.epoch == 0) {
    if (state_.comm->is_primary()) {
      warn("load_best_on_end: no epoch has a score; the model keeps the weights of the last epoch");
    }
  } else if (state_.comm->is_primary()) {
    warn(fmt::format(
        "load_best_on_end: the weights of the best epoch, {}, are not available: it was before "
        "the resume, and its checkpoint was not in the folder of the one that was resumed",
        state_.best.epoch));
  }
}

}  // namespace lockstep
