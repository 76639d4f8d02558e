// The folder of a run's checkpoints:
//
//   last.pth         the last epoch (or batch) that was saved; a separate file
//   epoch.0007.pth   the n best epochs, never more
//   best.pth         another name for the best of them
//   _metrics.json    the metrics of each of them
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/metrics.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

struct StoreOptions {
  std::filesystem::path folder;
  std::int64_t keep_best = 1;        // epochs to keep; 0 keeps only the last one
  Better better = Better::kSmaller;  // which of two scores is the better one
};

struct Kept {
  std::int64_t epoch = 0;
  double score = 0;
  EpochMetrics metrics;
  std::filesystem::path path;
};

class Store {
 public:
  explicit Store(StoreOptions options);

  // Call it after an epoch: it writes last, and keeps the epoch if it is among the best so far. A
  // score that is NaN is never among the best. `make_state` is called after the best are decided,
  // so that what it saves can include state() of this store. `epoch.path` is not used. After an
  // error the epoch can be saved again. If last was not written, best() is as before.
  void save_epoch(const Kept& epoch, const std::function<StateDict()>& make_state);

  // Call it inside an epoch: it writes only last.
  void save_last(const StateDict& state);

  // The best one is first.
  const std::vector<Kept>& best() const { return best_; }
  std::filesystem::path best_path() const { return options_.folder / "best.pth"; }
  std::filesystem::path last_path() const { return options_.folder / "last.pth"; }

  // The list of the best, for a checkpoint. Loading computes the scores of the epochs again with
  // `score`; an epoch without a score is dropped. It also drops epochs whose files do not exist any
  // more, and removes files of epochs that are not among the best.
  using Score =
      std::function<std::optional<double>(std::int64_t epoch, const EpochMetrics& metrics)>;
  StateDict state() const;
  void load_state(const StateDict& state, const Score& score);

 private:
  void insert(const Kept& kept);
  void write_index(const Kept& last) const;

  StoreOptions options_;
  std::vector<Kept> best_;
  std::set<std::filesystem::path> dropped_;  // files that are still to be removed
};

struct Loaded {
  StateDict state;
  std::filesystem::path path;
};

// Resolves `name`, a path to a file or "best", "last", "epoch.0007" in `folder`, and loads it. If
// `name` is not a path and that file is damaged, warns and loads the newest other undamaged
// checkpoint of the folder; throws CheckpointError if there is none.
Loaded load_by_name(const std::string& name, const std::optional<std::filesystem::path>& folder);

// The folder of the checkpoints of a run with this logdir.
std::filesystem::path folder_in(const std::filesystem::path& logdir);

// Converts metrics to their form in a checkpoint, and back.
StateDict to_state(const EpochMetrics& metrics);
EpochMetrics metrics_from_state(const StateDict& state);

}  // namespace lockstep::checkpoint
