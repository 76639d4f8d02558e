// The checkpoints of a run: what is in them, which epoch is the best, and how a run continues from
// one. The loop owns it. Saving goes from the loop through a callback's hook, which only says when,
// to CheckpointSeries, to the store, to the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/named.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/log/epoch_journal.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/checkpoint_series.h"
#include "lockstep/train/kept_run.h"
#include "lockstep/train/options.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/state.h"

namespace lockstep {

class LoaderPass;
class Replicas;
class RunMemory;
struct EpochRules;
struct Restored;

// The parts of a run that a checkpoint holds. All must outlive the Checkpointer.
struct CheckpointerParts {
  State& state;
  const std::vector<CallbackPtr>& callbacks;
  LoaderPass& pass;
  Replicas& replicas;
  const std::vector<std::unique_ptr<optim::Optimizer>>& optimizers;
  const std::vector<Phase>& phases;
  const TrainOptions& options;
  Named<double> initial_lrs;              // by optimizer, before the scheduler changed it
  const KeptRun* goes_on_from = nullptr;  // resume from it instead of a file
  RunMemory* memory = nullptr;            // rank 0's: a restart resumes from its point
  const EpochJournal& journal;            // what the run has logged in the current epoch
};

// Where a resumed run continues.
struct ResumePoint {
  std::filesystem::path path;        // the checkpoint that was loaded
  bool in_own_folder = false;        // it is in the folder of this run's checkpoints
  bool is_restart = false;           // the run goes on from its own point, after a failure
  std::int64_t finished_epochs = 0;  // before it
  std::size_t loader_index = 0;      // inside an epoch: the current loader
  std::int64_t first_batch = 0;      // inside an epoch: the loader's batches that are done
  std::optional<EpochJournal::Entries> records = {};  // inside an epoch: what was logged in it
};

class Checkpointer {
 public:
  explicit Checkpointer(const CheckpointerParts& parts);

  // The learning rates with which the run began, also before a resume: of the first optimizer, and
  // of all by name.
  double initial_lr() const { return initial_lrs_.begin()->second; }
  const Named<double>& initial_lrs() const { return initial_lrs_; }

  // Collective. Restores the run from the checkpoint that the options name, or from the run that it
  // goes on from, if there is one.
  std::optional<ResumePoint> resume();

  // The whole run as a checkpoint holds it, on rank 0; empty on the other ranks. Throws Error
  // unless state.can_snapshot is true. Collective inside an epoch; between epochs only rank 0 calls
  // it. It is a copy, which the run does not change any more. The memory of `reuse`, an older
  // snapshot, is used for it, and then it takes as long as memcpy (state/copy.h).
  StateDict snapshot(StateDict* reuse = nullptr);

  // Not collective. Called after a step: throws Error if the state of an optimizer that has made
  // its first step cannot be saved, because some have a state only then. An error now costs one
  // batch; an error at the first checkpoint would cost an epoch.
  void check_optimizers_once();

  // Collective. Called when the metrics of an epoch are complete: notes the epoch if it is the
  // best.
  void note_epoch();

  // Those of the best epoch, with load_best_on_end, as far as they are known.
  const std::optional<StateDict>& best_weights() const { return best_weights_; }

  // Called after a file was written: calls on_checkpoint of all callbacks. They see the progress
  // and the metrics of the moment at which it was saved.
  void notify_written(const CheckpointSeries& series, const SavedAt& at);

  // Not collective. Call it when all epochs are done: saves the last one where that is still to be
  // done (CheckpointOptions::save_every_epochs).
  void save_last_epoch();

  // Not collective. Checkpoints are written beside training. report_written() calls on_checkpoint
  // for files that are there now; finish_writing() waits for all files first. Both throw what the
  // writing threw. The loop calls the first after each batch, and the second before a run ends.
  void report_written();
  void finish_writing();
  // Whether a file is being written, or is not reported yet.
  bool is_writing() const;
  // As CheckpointSeries::need_files().
  void need_files(bool needed);

  // For load_best_on_end: gives the model the weights of the best epoch. Warns if it cannot.
  void load_best();

  // Begins to save checkpoints as `options` say. `remembered` is what state() of the same series
  // returned in the run that is resumed. The series lives as long as the Checkpointer.
  CheckpointSeries& open(const CheckpointOptions& options,
                         const std::optional<StateDict>& remembered);

 private:
  EpochRules rules() const;
  bool has_start();
  checkpoint::Loaded load(const std::optional<std::filesystem::path>& folder) const;
  Restored restore(const checkpoint::Loaded& loaded);
  void keep_lrs(const StateDict& snapshot);
  bool is_best(double score) const;
  StateDict copy_for_use() const;
  StateDict loaded_for_use(const StateDict& snapshot) const;
  void find_best_of_history(const checkpoint::Loaded& loaded);
  StateDict weights_of_best(const std::filesystem::path& best_file) const;

  CheckpointerParts parts_;
  // What the run goes on from instead of a file: the run before, or a point. It is null on ranks
  // other than 0 after a restart.
  const KeptRun* start_ = nullptr;
  bool is_restart_ = false;  // it goes on from a point
  State& state_;
  Named<double> initial_lrs_;
  std::optional<StateDict> best_weights_;  // with load_best_on_end
  std::vector<std::shared_ptr<CheckpointSeries>> series_;
  std::set<std::string> checked_;  // optimizers whose state can be saved, after their first step
};

}  // namespace lockstep
