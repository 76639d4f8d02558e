// The outer loop: one run of train(), from the first epoch, or the resumed one, to the summary. An
// evaluation is the same loop without an optimizer: one epoch that updates nothing.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/engine/replicas.h"
#include "lockstep/log/logdir.h"
#include "lockstep/log/profiler.h"
#include "lockstep/train/agreement.h"
#include "lockstep/train/averaged_weights.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/device_copies.h"
#include "lockstep/train/loader_pass.h"
#include "lockstep/train/options.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/run_memory.h"
#include "lockstep/train/state.h"
#include "lockstep/train/train_step.h"
#include "lockstep/train/without_gradients.h"

namespace lockstep {

class Loop {
 public:
  // One worker's loop. Every worker makes one.
  Loop(Plan plan, comm::Communicator& communicator);
  ~Loop();

  TrainResult run();

  // After run(): what is needed to go on from here, with the option keep_run. Else null.
  std::shared_ptr<const KeptRun> kept_run() const { return kept_run_; }

 private:
  // What updates the model.
  struct TrainingParts {
    // Collective.
    TrainingParts(const Plan& plan, comm::Communicator& comm, Profiler& profiler,
                  DeviceCopies* copies);

    // The names and numbers of an optimizer or a scheduler that a function makes are known only
    // after it was made.
    Agreement made_optimizers(const Plan& plan) const;
    Agreement made_schedulers(const Plan& plan) const;

    bool unseen_gradients;  // no callback of any rank reads gradients
    Replicas replicas;
    // As in the plan.
    std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
    std::vector<std::unique_ptr<optim::Scheduler>> schedulers;  // null if there is none
    Named<double> initial_lrs;                  // by optimizer, before the scheduler changed it
    std::unique_ptr<optim::GradScaler> scaler;  // null if the loss is not scaled
    std::vector<TrainStep> steps;               // by phase
  };

  // Networks without an optimizer: they are in evaluation mode and need no gradients, and are
  // restored afterwards.
  class UntrainedScope {
   public:
    explicit UntrainedScope(const Plan& plan);
    ~UntrainedScope();
    UntrainedScope(const UntrainedScope&) = delete;
    UntrainedScope& operator=(const UntrainedScope&) = delete;

    std::vector<Model> networks() const;

   private:
    std::vector<std::pair<Model, bool>> modes_;
    std::unique_ptr<WithoutGradients> without_gradients_;
  };

  void set_optimizers();
  void begin();
  void learn_of_restart();
  void begin_training();
  bool has_begun_before() const;
  void prepare_logging(bool continued);
  void take_weights();
  void take_parts();
  bool resume();
  void run_measured();
  void run_epochs();
  void warn_of_missing_steps() const;
  void keep_run();
  void take_snapshot(KeptRun& kept);
  bool after_batch();
  bool may_take_point() const;
  void finish_writing_for_point();
  void finish_point();
  void abandon() noexcept;
  void take_point();
  void take_point_if(bool wanted);
  void report_recovery();
  bool is_restarted(const std::exception& error);
  void run_epoch();
  std::int64_t epoch_start(std::int64_t epoch) const;
  std::int64_t last_start() const;
  void take_records(std::optional<EpochJournal::Entries> records);
  void run_pass(const std::string& loader);
  void remake_batch_norm();
  void finish_loader();
  void record_epoch();
  void finish_epoch();
  void agree_to_stop();
  void fail();
  std::string failed_in() const;
  void open_loggers(bool continued);
  void close_loggers(const RunEnd& end) noexcept;
  RunEnd run_end(const TrainResult& result, const std::exception_ptr& exception) const;
  TrainResult finish(const std::exception_ptr& exception);
  bool finish_together(const std::function<void()>& call);
  void finish_training(TrainResult& result);

  Plan plan_;            // of this rank
  RunMemory* memory_;    // rank 0's, of a run that may be restarted; else null
  bool shares_points_;   // with the memories of other launchers
  LogDirectory logdir_;  // rank 0's, locked; must outlive everything that writes to it
  State state_;
  comm::Communicator& comm_;
  UntrainedScope untrained_;
  std::unique_ptr<DeviceCopies> copies_;     // null on the CPU
  std::unique_ptr<TrainingParts> training_;  // none when evaluating
  Profiler profiler_;
  std::string operators_;  // the table of OperatorProfile, if it was asked for
  std::shared_ptr<EpochJournal> journal_ = std::make_shared<EpochJournal>();
  std::unique_ptr<LoaderPass> pass_;
  std::unique_ptr<AveragedWeights> averaged_;   // none when evaluating
  std::unique_ptr<Checkpointer> checkpointer_;  // none when evaluating
  std::shared_ptr<KeptRun> kept_run_;

  std::size_t loader_index_ = 0;  // the current loader
  std::int64_t first_batch_ = 0;  // of the current loader, after a resume
  // An attempt before has called the hooks at the starts up to last_start(), and logged.
  bool has_logged_starts_ = false;
  EpochJournal::Entries records_;  // after a resume inside an epoch: what was logged in it
  bool begun_ = false;             // on_run_start is called, so on_run_end must be, too
  // The next point began before it was taken: the loop waited for a file.
  std::optional<std::chrono::steady_clock::time_point> point_began_;
  RunTotals own_totals_;  // of a run that cannot be restarted
  RunTotals& totals_;
};

// Called in a catch block, on rank 0: the run has ended with this exception, and no Loop could tell
// the callbacks, because its last attempt could not begin. If an earlier attempt has called
// on_run_start, calls on_exception and on_run_end. The state is then as the last attempt left it,
// but without optimizers, and the communicator has one rank.
void end_lost_run(const Plan& plan, RunMemory& memory) noexcept;

}  // namespace lockstep
