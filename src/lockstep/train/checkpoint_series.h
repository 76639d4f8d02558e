// The checkpoint files that one CheckpointCallback asks for: last and best after every epoch or
// every n-th, and last inside epochs if requested.
//
// A save copies the run in memory, and a thread writes the copy while training goes on. The copy
// has the same memory every time, which the thread prepares after the first step. So a save stalls
// training for about as long as a memcpy of its bytes takes. It takes longer with a torch
// optimizer, whose state torch serialises first. If the next save is due while the last one is
// still being written, it waits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/base/metrics.h"
#include "lockstep/checkpoint/background_writer.h"
#include "lockstep/checkpoint/name_pattern.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/selection.h"
#include "lockstep/train/state.h"

namespace lockstep {

class Checkpointer;

enum class CheckpointMode {
  kFull,   // everything a run needs to continue
  kModel,  // only the weights: small, and enough to evaluate and predict
  kNone,   // nothing is saved, also if the run has a logdir
};

struct CheckpointOptions {
  std::optional<std::filesystem::path> folder = std::nullopt;  // default: logdir/checkpoints
  std::optional<MetricKey> metric = std::nullopt;  // decides the best; default: valid_loader's
  // Whether a smaller metric is better. Default: minimize_valid_metric if the metric is
  // valid_loader's, else as the metric says.
  std::optional<bool> minimize = std::nullopt;
  // best.pth changes only if the metric is better by more than this. Needs a metric.
  double min_delta = 0.0;
  std::int64_t save_n_best = 1;  // epochs kept; 0: only last.pth, and no best.pth
  // Keeps the file of every save, also of those inside epochs. save_n_best is not used then.
  bool keep_all = false;
  std::int64_t save_every_epochs = 1;   // and after the last epoch; 0: only then
  std::int64_t save_every_batches = 0;  // last.pth inside epochs, too; 0: never
  // The same after updates of the model: after each multiple of this many, since the beginning.
  std::int64_t save_every_steps = 0;
  // The name of files that are kept, instead of "epoch.{epoch:04d}": {epoch}, {step} (updates of
  // the model), {score}, or a loader's metric such as {valid_loss}, with a format as in Python:
  // "model.{epoch:02d}-{valid_loss:.2f}". ".pth" is added. Needs {epoch} or {step}.
  std::optional<std::string> filename = std::nullopt;
  CheckpointMode mode = CheckpointMode::kFull;
};

// Throws ConfigError for values that make no sense, whatever the run is.
void check_checkpoints(const CheckpointOptions& options);
// Throws ConfigError if the options cannot work in this run.
void check_checkpoints(const CheckpointOptions& options, const RunState& run);

// The moment of a run at which a file was saved.
struct SavedAt {
  Progress progress = {};
  bool inside_epoch = false;
  EpochMetrics epoch_metrics = {};
};

// Every rank has one. Rank 0 writes; the other ranks take part in the collective calls. Nothing
// collective depends on when a file is finished.
class CheckpointSeries : public std::enable_shared_from_this<CheckpointSeries> {
 public:
  CheckpointSeries(const CheckpointOptions& options, Checkpointer& checkpointer, State& state);

  // Collective. Call them in on_step, on_epoch_end and on_exception.
  void after_step();
  void after_epoch();
  void after_exception();
  // Not collective. Call it when all epochs are done, with state.can_snapshot: saves the last one
  // if after_epoch() did not, because it was not due.
  void after_run();

  // Not collective. If a file was written since the last call, names it in the state and calls
  // on_checkpoint. Throws what the writing threw. finish_writing() waits for the file first.
  void report_written();
  void finish_writing();
  bool is_writing() const { return unreported_.has_value(); }  // or not yet reported

  // Not collective. The run may go back to this moment, so the files of the best epochs of now must
  // stay until the next call. False: it does not go back any more. No file may be being written.
  void need_files(bool needed);

  // The list of the best epochs, and what was not saved yet, for a checkpoint.
  StateDict state() const;
  void load_state(const StateDict& state);

 private:
  // What is reported when a file is there.
  struct Unreported {
    SavedAt at;
    bool is_epoch = false;                           // else it is only last.pth
    std::optional<std::filesystem::path> best = {};  // the run's best checkpoint, with is_epoch
  };

  bool is_due_inside_epoch() const;
  void note_save();
  void prepare_memory();
  void save_epoch();
  enum class Inside { kDue, kInterrupted };
  void save_inside(Inside why);
  std::filesystem::path name_of(double score) const;
  StateDict content();
  void begin_writing(checkpoint::Store::Write write, StateDict whole);
  std::optional<std::filesystem::path> best_of_run() const;
  void publish_last() const;

  CheckpointOptions options_;
  Checkpointer& checkpointer_;
  State& state_;
  Selection selection_;
  std::optional<checkpoint::NamePattern> pattern_;
  std::optional<checkpoint::Store> store_;  // rank 0's
  std::int64_t unsaved_batches_ = 0;
  std::int64_t step_saves_ = 0;     // how many were due so far, by save_every_steps
  bool has_unsaved_epoch_ = false;  // the last epoch was not due
  StateDict copy_;         // what is written, or was written last; or memory for the first save
  bool prepared_ = false;  // copy_ has memory, or gets it
  std::optional<Unreported> unreported_;
  // The last member: its destructor waits for a job that uses copy_.
  checkpoint::BackgroundWriter writer_;
};

}  // namespace lockstep
