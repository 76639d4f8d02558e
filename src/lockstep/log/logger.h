// A logger is a sink for what a run reports. The loop hands every logger the same records; each
// writes them where it belongs (console, CSV, TensorBoard, or a user's own). Only rank 0 has any.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "lockstep/base/metrics.h"
#include "lockstep/plot/image.h"

namespace lockstep {

using HParam = std::variant<bool, std::int64_t, double, std::string>;
using HParams = std::map<std::string, HParam, std::less<>>;

enum class Scope { kBatch, kLoader, kEpoch };

// Where the run is. Epochs count from 1; steps count optimizer-visible batches and samples of train
// loaders over the whole run and go on after a resume.
struct Progress {
  std::int64_t epoch = 0;
  std::int64_t num_epochs = 0;
  std::int64_t batch_step = 0;
  std::int64_t sample_step = 0;
};

// How a run begins.
struct RunStart {
  // Where it starts: zeros, or where the checkpoint stopped. Here progress.epoch is the number of
  // finished epochs: a run resumed inside epoch 4, or right after epoch 3, starts with 3.
  Progress progress = {};
  bool resumed = false;  // goes on with an earlier run's files; else files start anew
  HParams hparams = {};  // what the user passed as hparams, with what the run itself knows
};

struct Record {
  Scope scope = Scope::kEpoch;
  std::string loader = {};  // "train", "valid", ...; kEpochKey for what belongs to no loader
  Progress progress = {};
  Metrics metrics = {};
  // Where a batch of a loader that is not trained on stands: samples of it that were seen by now,
  // over all epochs. Such batches do not move progress.sample_step.
  std::optional<std::int64_t> step = {};
};

class Logger {
 public:
  virtual ~Logger() = default;

  virtual void start(const RunStart&) {}
  virtual void log_metrics(const Record& record) = 0;
  // `tag` names the picture ("confusion_matrix"), `loader` where it belongs.
  virtual void log_image(const std::string& /*loader*/, const std::string& /*tag*/, const Image&,
                         const Progress&) {}
  // At the end of each epoch: every reader sees what was logged, also if the process is killed now.
  virtual void flush() {}
  // The run is over; nothing follows. What was logged is on the disk after it.
  virtual void close() {}
};

}  // namespace lockstep
