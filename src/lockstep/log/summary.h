// summary.json: the results of a run, for people and scripts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/base/metrics.h"

namespace lockstep {

struct EpochSummary {
  std::int64_t epoch = 0;
  EpochMetrics metrics = {};
  std::optional<std::string> checkpoint = {};  // the file that holds this epoch's model
};

struct RunSummary {
  std::optional<EpochSummary> best = {};  // none if no epoch could be scored
  std::optional<EpochSummary> last = {};  // none if no epoch was finished
  double train_samples_per_second = 0;
  double seconds = 0;
  std::int64_t workers = 1;
  std::int64_t shards = 1;             // parts of every batch
  std::int64_t global_batch_size = 0;  // samples in a batch to train on, over all shards
  std::string weights_hash = {};       // of the weights after the last step
  std::int64_t recoveries = 0;         // how many times workers were made anew
  std::string precision = "fp32";      // of forward pass and loss
  std::int64_t skipped_steps = 0;      // updates with gradients that were not finite
};

// Writes this, completely or not at all:
//   {"best": {"epoch", "metrics": {loader: {name: value}}, "checkpoint"}, "last": {the same},
//    "train_samples_per_second", "seconds", "workers", "shards", "global_batch_size",
//    "weights_hash", "recoveries", "precision", "skipped_steps"}
// Missing values are null. So are NaN and infinity, because JSON has no number for them.
void write_summary(const std::filesystem::path& path, const RunSummary& summary);

}  // namespace lockstep
