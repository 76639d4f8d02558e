// The folder of a run's checkpoints:
//
//   last.pth             the last epoch (or batch) that was saved; a separate file
//   epoch.0007.pth       the n best epochs, never more; or all that were saved
//   step.00001200.pth    saved inside an epoch, if all are kept
//   best.pth             another name for the best epoch's file
//   _metrics.json        the metrics of each of them
//
// The files of epochs and steps may have other names, which the caller gives.
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
  std::int64_t keep_best = 1;        // epochs to keep; 0 keeps only last.pth, and no best.pth
  Better better = Better::kSmaller;  // which of two scores is the better one
  double min_delta = 0.0;            // the best changes only for a score better by more than this
  bool keep_all = false;             // keeps every epoch, whatever its score; keep_best is not used
};

struct Kept {
  std::int64_t epoch = 0;
  double score = 0;
  EpochMetrics metrics;
  std::filesystem::path path;             // only its name counts; empty: the usual name
  std::optional<std::int64_t> step = {};  // the update inside the epoch after which it was saved
};

class Store {
 public:
  explicit Store(StoreOptions options);

  // Saving has two steps: the store decides which files there will be, and then the files are
  // written. Another thread may write, because a Write has its own copy of all that it needs. The
  // Writes of a store must be called one after the other, in the order in which they were made.
  using Write = std::function<void(const StateDict& state)>;

  // Call it after an epoch. The epoch is kept if it is among the best so far; a score that is NaN
  // never is. Afterwards state() includes the epoch, so that the file can have it. The result
  // writes last, and the epoch if it is kept, and removes what is not kept any more.
  [[nodiscard]] Write decide_epoch(const Kept& epoch);

  // Call it inside an epoch: the result writes only last.
  [[nodiscard]] Write decide_last();

  // Call it inside an epoch: the result writes last and a file that stays, without a score.
  // `kept.step` is required.
  [[nodiscard]] Write decide_step(const Kept& kept);

  // For a run that may go back to this moment: the files of the epochs that are listed now stay,
  // also if later epochs are better, until one of these functions is called again. There must be no
  // Write that was not called. If a Write has failed, the files that last.pth lists still stay.
  void need_listed();
  void need_nothing() { need({}); }

  // The epochs that are decided; the best one is first. A file exists after it was written.
  const std::vector<Kept>& best() const { return best_; }
  // The best one; null if no epoch has a score.
  const Kept* best_epoch() const;
  std::filesystem::path best_path() const { return options_.folder / "best.pth"; }
  // The file of the best one: best_path(), unless that is still another epoch's after load_state().
  std::optional<std::filesystem::path> best_file() const;
  std::filesystem::path last_path() const { return options_.folder / "last.pth"; }

  // The list of the best, for a checkpoint. Loading computes the scores of the epochs again with
  // `score`; an epoch without a score is dropped, and so is one whose file does not exist any more.
  // It changes no file: if the folder has the files of a later moment, last.pth is of that moment
  // and lists them. The first Write replaces last.pth and then removes what it does not list. But
  // if the file of an epoch is there as best.pth only, it gets its own name again.
  using Score =
      std::function<std::optional<double>(std::int64_t epoch, const EpochMetrics& metrics)>;
  StateDict state() const;
  void load_state(const StateDict& state, const Score& score);

 private:
  void insert(const Kept& kept);
  void insert_by_score(const Kept& kept);
  void keep_best();
  void need(std::vector<std::filesystem::path> paths);
  std::vector<std::filesystem::path> unlisted() const;

  StoreOptions options_;
  std::vector<Kept> best_;
  std::vector<Kept> steps_;                    // saved inside epochs, in the order of time
  std::optional<Kept> last_;                   // the last epoch; its path is not used
  std::vector<std::filesystem::path> needed_;  // files that stay although they are not listed
  std::set<std::filesystem::path> dropped_;    // files that are not listed any more
  bool is_resumed_ = false;                    // all files of epochs in the folder are this run's
  bool is_behind_ = false;                     // nothing was written since load_state()
};

struct Loaded {
  StateDict state;
  std::filesystem::path path;
};

// Resolves `name`, a path to a file or the name of one in `folder` with or without .pth ("best",
// "last", "epoch.0007"), and loads it. If `name` is not a path and that file is damaged, warns and
// loads the newest other undamaged checkpoint of the folder; throws CheckpointError if there is
// none. The named file may be a checkpoint of ours that Python changed and saved again: it has no
// checksum, and a warning says so.
Loaded load_by_name(const std::string& name, const std::optional<std::filesystem::path>& folder);

// The folder of the checkpoints of a run with this logdir.
std::filesystem::path folder_in(const std::filesystem::path& logdir);

// Converts metrics to their form in a checkpoint, and back.
StateDict to_state(const EpochMetrics& metrics);
EpochMetrics metrics_from_state(const StateDict& state);

}  // namespace lockstep::checkpoint
