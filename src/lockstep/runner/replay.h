// Shows a finished run to callbacks and loggers, without training: for a logger, a plot or a report
// that was not there during the run.
//
//   runner.replay({.callbacks = {my_plot}, .history = result.history});
//   runner.replay({.loggers = {std::make_shared<ls::TensorBoardLogger>("board")},
//                  .history = "logs/run"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "lockstep/log/logger.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct ReplayOptions {
  // Their on_run_start, on_epoch_start, on_epoch_end and on_run_end are called. The state has the
  // epoch, epoch_metrics and history, but neither a model nor an optimizer nor loaders.
  Callbacks callbacks = {};
  std::vector<std::shared_ptr<Logger>> loggers = {};  // get the metrics of loaders and epochs
  // The metrics of all finished epochs: history of a TrainResult; or the folder of a run, whose
  // logs/*.csv are read.
  std::variant<std::map<std::int64_t, EpochMetrics>, std::filesystem::path> history = {};
  HParams hparams = {};  // of the run, for loggers and callbacks
};

// The metrics in the logs of a run, as TrainResult::history has them. Throws Error if the folder
// has no logs of a finished epoch.
std::map<std::int64_t, EpochMetrics> read_history(const std::filesystem::path& folder);

}  // namespace lockstep
