// A model of a field behind one interface for training, predictions, saving and loading.
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

  // Called after each epoch, in this process. An estimator without epochs calls it once.
  using OnEpoch = std::function<void(std::int64_t epoch, const EpochMetrics& metrics)>;

  // Trains on the first loader; the other loaders are for validation. When it returns, this process
  // has the trained model, however many workers trained it.
  void train(const data::Loaders& loaders, const OnEpoch& on_epoch = {}) {
    if (loaders.empty()) throw ConfigError("loaders: expected at least one, got none");
    fit(loaders, on_epoch);
  }

  // Predictions for the loader's features, one row per sample. Throws Error before train() or
  // load().
  virtual torch::Tensor predict(const data::Loader& loader) = 0;

  // Whether predict() scales predictions for a data set that scales its samples (data/scaling.h)
  // back to the units of the file. If not, an EvaluateExperiment does it.
  virtual bool scales_back() const { return false; }

  // Writes the model, and its parameters as params.json, into a folder. If a launcher started
  // several processes, only rank 0 writes. Throws Error before train() or load().
  virtual void save(const std::filesystem::path& folder) const = 0;
  // Reads what save() wrote. Throws CheckpointError if another kind of estimator wrote it.
  virtual void load(const std::filesystem::path& folder) = 0;

  // The options of this estimator, for a tracker.
  virtual HParams parameters() const = 0;

  // The trained model as text: its weights with their shapes. "" if there is nothing to list.
  virtual std::string describe() const { return ""; }

  // Metrics of each epoch of the last train(). An estimator without epochs has one entry, epoch 1.
  virtual const std::map<std::int64_t, EpochMetrics>& history() const = 0;

 protected:
  // Does the work of train(). There is at least one loader; `on_epoch` may be empty.
  virtual void fit(const data::Loaders& loaders, const OnEpoch& on_epoch) = 0;
};

}  // namespace lockstep::science
