// A logger writes what a run reports. The loop gives every logger the same records, and each logger
// writes them to its output (console, CSV, TensorBoard, or a user's own). Only rank 0 has loggers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "lockstep/base/metrics.h"
#include "lockstep/log/artifact.h"
#include "lockstep/log/histogram.h"
#include "lockstep/plot/image.h"

namespace lockstep {

using HParam = std::variant<bool, std::int64_t, double, std::string>;
using HParams = std::map<std::string, HParam, std::less<>>;

enum class Scope { kBatch, kLoader, kEpoch };

// How far the run is. Epochs count from 1. Steps count the batches and samples of train loaders
// that the optimizer sees, over the whole run, and continue after a resume.
struct Progress {
  std::int64_t epoch = 0;
  std::int64_t num_epochs = 0;
  std::int64_t batch_step = 0;
  std::int64_t sample_step = 0;
  std::int64_t update_step = 0;  // updates of the model: with accumulation, fewer than batches
};

// How a run begins.
struct RunStart {
  // Where the run starts: zeros, or the position of the checkpoint. Here progress.epoch is the
  // number of finished epochs: a run that is resumed inside epoch 4, or right after epoch 3, starts
  // with 3. -1: an earlier process of this run was lost when the run had only begun. Nothing that
  // it logged is kept.
  Progress progress = {};
  bool resumed = false;  // continues an earlier run's files; else replaces files
  // Resumed by a new process of the same run, which has not resumed another one. What is logged
  // again, because some batches are repeated, has the same values as in the files.
  bool restarted = false;
  HParams hparams = {};  // those of the user, and those that the run adds
  // Of a resumed run: the metrics of all finished epochs, as the checkpoint has them. The files of
  // the earlier run may lack some of them, because they were damaged or did not reach the disk.
  // Loggers write these again.
  std::map<std::int64_t, EpochMetrics> history = {};
  std::optional<std::filesystem::path> logdir = {};   // the run's folder, if it has one
  std::map<std::string, std::string> documents = {};  // by name, for example the run's config
};

// How a run ends.
struct RunEnd {
  enum class Status {
    kFinished,
    kFailed,       // with an exception
    kInterrupted,  // by Ctrl-C or another signal
  };
  Status status = Status::kFinished;
  // Files of a run that has a folder and has finished.
  std::optional<std::filesystem::path> summary = {};  // summary.json
  std::optional<std::filesystem::path> model = {};    // its best checkpoint, else its last one
};

struct Record {
  Scope scope = Scope::kEpoch;
  std::string loader = {};  // "train", "valid", ...; kEpochKey if it belongs to no loader
  Progress progress = {};
  Metrics metrics = {};
  // The step of a batch from a loader that is not trained on: the number of its samples that were
  // seen so far, over all epochs. Such batches do not change progress.sample_step.
  std::optional<std::int64_t> step = {};
};

class Logger {
 public:
  virtual ~Logger() = default;

  virtual void start(const RunStart&) {}
  virtual void log_metrics(const Record& record) = 0;
  // `tag` names the image ("confusion_matrix"), `loader` the loader that it belongs to.
  virtual void log_image(const std::string& /*loader*/, const std::string& /*tag*/, const Image&,
                         const Progress&) {}
  // A file of any kind. The logger reads it during the call.
  virtual void log_artifact(const Artifact&, const Progress&) {}
  // The distribution of many numbers, for example the weights of a layer, after
  // progress.update_step updates.
  virtual void log_histogram(const std::string& /*loader*/, const std::string& /*tag*/,
                             const Histogram&, const Progress&) {}
  // Called at the end of each epoch, and at the start of a run that a launcher may start again.
  // After it, other programs can read everything that was logged, even if the process is killed
  // then.
  virtual void flush() {}
  // Called when it is known how the run ends, before close(). A run that is restarted after a fault
  // has not ended.
  virtual void end(const RunEnd&) {}
  // Called at the end of the run. After it, everything that was logged is on the disk.
  virtual void close() {}
};

}  // namespace lockstep
