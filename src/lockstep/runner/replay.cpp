#include "lockstep/runner/replay.h"

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "lockstep/log/csv_table.h"
#include "lockstep/runner/runner.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using History = std::map<std::int64_t, EpochMetrics>;

History history_of(const ReplayOptions& options) {
  if (const auto* const folder = std::get_if<fs::path>(&options.history)) {
    return read_history(*folder);
  }
  const History& given = std::get<History>(options.history);
  if (given.empty()) {
    throw ConfigError(
        "replay: history: expected the metrics of at least one epoch, got none; pass the history "
        "of a TrainResult, or the folder of a run");
  }
  return given;
}

std::vector<CallbackPtr> callbacks_of(const ReplayOptions& options) {
  std::vector<CallbackPtr> callbacks = options.callbacks.sorted();
  for (const auto& callback : callbacks) {
    if (!callback->traits().needs_training) continue;
    throw ConfigError("replay: {} makes sense in train() only", callback->name());
  }
  std::erase_if(callbacks,
                [](const CallbackPtr& item) { return item->traits().ranks == Ranks::kOthers; });
  return callbacks;
}

void log_epoch(const State& state) {
  for (const auto& logger : state.loggers) {
    for (const auto& [loader, metrics] : state.epoch_metrics) {
      const Scope scope = loader == kEpochKey ? Scope::kEpoch : Scope::kLoader;
      logger->log_metrics({scope, loader, state.progress, metrics});
    }
  }
}

void replay_epochs(const History& history, const std::vector<CallbackPtr>& callbacks,
                   State& state) {
  for (const auto& [epoch, metrics] : history) {
    state.progress.epoch = epoch;
    state.epoch_metrics.clear();
    state.inside_epoch = true;
    notify_all(callbacks, &Callback::on_epoch_start, state);
    state.epoch_metrics = metrics;
    state.history[epoch] = metrics;
    log_epoch(state);
    state.inside_epoch = false;
    notify_end(callbacks, &Callback::on_epoch_end, state);
    for (const auto& logger : state.loggers) logger->flush();
    if (state.stop_reason) return;
  }
}

}  // namespace

History read_history(const fs::path& folder) {
  History history;
  const fs::path logs = folder / "logs";
  if (fs::is_directory(logs)) {
    for (const auto& entry : fs::directory_iterator(logs)) {
      if (entry.path().extension() != ".csv") continue;
      for (auto& [epoch, metrics] : read_csv_table(entry.path())) {
        history[epoch][entry.path().stem().string()] = std::move(metrics);
      }
    }
  }
  // A run that was interrupted has logged some loaders of its last epoch.
  std::erase_if(history, [](const auto& item) { return !item.second.contains(kEpochKey); });
  if (history.empty()) {
    throw Error(
        "{}: expected logs/*.csv with at least one finished epoch, got none; give the logdir of a "
        "run, or that of one of its stages",
        folder.string());
  }
  return history;
}

void Runner::replay(const ReplayOptions& options) {
  const History history = history_of(options);
  const std::vector<CallbackPtr> callbacks = callbacks_of(options);
  comm::Local alone;
  State state;
  state.comm = &alone;
  state.engine = std::make_shared<DeviceEngine>();
  state.hparams = options.hparams;
  state.loggers = options.loggers;
  state.progress.num_epochs = history.rbegin()->first;
  state.running_metrics = [] { return Metrics(); };
  for (const auto& logger : state.loggers) {
    logger->start({.progress = state.progress, .hparams = options.hparams});
  }
  try {
    notify_all(callbacks, &Callback::on_run_start, state);
    replay_epochs(history, callbacks, state);
  } catch (...) {
    state.exception = std::current_exception();
    notify_failure(callbacks, state);
    for (const auto& logger : state.loggers) logger->close();
    throw;
  }
  notify_end(callbacks, &Callback::on_run_end, state);
  for (const auto& logger : state.loggers) logger->close();
}

}  // namespace lockstep
