// A model of a field that is trained, asked and kept as one thing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/base/metrics.h"
#include "lockstep/data/loaders.h"
#include "lockstep/log/logger.h"

namespace lockstep::science {

class Estimator {
 public:
  virtual ~Estimator() = default;

  virtual std::string name() const = 0;

  // What a caller does after each epoch, in this process. One that has no epochs calls it once.
  using OnEpoch = std::function<void(std::int64_t epoch, const EpochMetrics& metrics)>;

  // Fits the first loader; where there are more, they are for validation. Returns when it is
  // trained here, in this process, by however many workers.
  void train(const data::Loaders& loaders, const OnEpoch& on_epoch = {}) {
    if (loaders.empty()) throw ConfigError("loaders: expected at least one, got none");
    fit(loaders, on_epoch);
  }

  // What it makes of the loader's features, one row a sample. Throws Error before train() or
  // load().
  virtual torch::Tensor predict(const data::Loader& loader) = 0;

  // Into a folder: the model, and its parameters as params.json. Of the processes that a launcher
  // started, rank 0 does. Throws Error before train() or load().
  virtual void save(const std::filesystem::path& folder) const = 0;
  // What save() wrote. Throws CheckpointError where it is another estimator's.
  virtual void load(const std::filesystem::path& folder) = 0;

  // What it was made with, for a tracker.
  virtual HParams parameters() const = 0;

  // The trained model in words: its weights with their shapes. "" where there is nothing to tell.
  virtual std::string describe() const { return ""; }

  // Metrics of each epoch of the last train(); empty for one that has no epochs.
  virtual const std::map<std::int64_t, EpochMetrics>& history() const = 0;

 protected:
  // train(), of at least one loader; `on_epoch` may be empty.
  virtual void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) = 0;
};

}  // namespace lockstep::science
