// The outer loop: one run of train(), from the first epoch, or the resumed one, to the summary.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/engine/replica.h"
#include "lockstep/log/logdir.h"
#include "lockstep/log/profiler.h"
#include "lockstep/train/loader_pass.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"
#include "lockstep/train/train_step.h"

namespace lockstep {

// The parts of a run that the runner made from the options. All of them are set.
struct Plan {
  TrainOptions options;  // as given
  Model model;
  Criterion criterion;  // may be empty
  optim::OptimizerSpec optimizer;
  optim::SchedulerSpec scheduler;  // may be empty
  data::Loaders loaders;
  std::vector<CallbackPtr> callbacks;  // built-in ones included, in their order
  std::shared_ptr<Engine> engine;
  std::string loss_key;
  std::function<void(State&)> handle_batch;
  // What handle_batch adds besides the loss; nothing: it may add any metric.
  std::optional<std::vector<std::string>> runner_metrics;
};

class Loop {
 public:
  // One worker's loop. Every worker makes one.
  Loop(Plan plan, comm::Communicator& communicator);
  ~Loop();

  TrainResult run();

 private:
  void check_sync_bn() const;
  void prepare_logging(bool continued);
  void take_weights();
  void keep_lr(const StateDict& snapshot);
  bool resume();
  void run_epochs();
  void run_epoch();
  void finish_loader();
  void finish_epoch();
  void agree_to_stop();
  void update_best();
  bool is_better(double score) const;
  void find_best_of_history(const std::filesystem::path& checkpoint);
  void fail();
  std::string failed_in() const;
  void close_loggers() noexcept;
  StateDict snapshot();
  TrainResult finish();

  Plan plan_;
  LogDirectory logdir_;  // rank 0's, locked; must outlive everything that writes to it
  State state_;
  comm::Communicator& comm_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Scheduler> scheduler_;
  std::unique_ptr<TrainStep> step_;
  Profiler profiler_;
  std::unique_ptr<LoaderPass> pass_;

  std::size_t loader_index_ = 0;    // the current loader
  std::int64_t first_batch_ = 0;    // of the current loader, after a resume
  bool begun_ = false;              // on_run_start is called, so on_run_end must be, too
  std::int64_t epochs_before_ = 0;  // finished before a resume
  bool inside_epoch_ = false;       // an epoch is under way, its metrics are not complete
  std::optional<StateDict> best_weights_;
  double initial_lr_ = 0;
  double train_seconds_ = 0;
  std::int64_t train_samples_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep
