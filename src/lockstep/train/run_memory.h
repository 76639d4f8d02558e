// What outlives an attempt of a run that may be restarted (TrainOptions::max_restarts): the last
// point, from which the next attempt goes on, the loggers, and what the run has reached.
// docs/decisions/recovery.md describes how it is used.
//
// The process of rank 0 uses it. Forked workers have a copy of its first state, which they do not
// use: rank 0 tells them what they need. Ranks that a launcher started have one each, over memory
// that the launcher keeps. They use it to note their failures, and rank 0 also for its points.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/topology.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/logdir.h"
#include "lockstep/log/once_logger.h"
#include "lockstep/log/recovery_log.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/kept_run.h"
#include "lockstep/train/model.h"
#include "lockstep/train/restart_policy.h"
#include "lockstep/train/run_totals.h"
#include "lockstep/train/state.h"
#include "lockstep/train/stored_run.h"

namespace lockstep {

// Tells the logger how the run ends, if that is known, and closes it. Warns if that fails.
void close_logger(Logger& logger, const RunEnd* end) noexcept;

class RunMemory {
 public:
  // For workers that this process makes anew.
  explicit RunMemory(int max_restarts) : policy_(max_restarts) {}
  // For processes that a launcher starts again.
  // Its identity tells the runs of a program apart, for example by their folders: a program that is
  // started again may leave out a run that was finished.
  struct Launched {
    int max_restarts = 0;
    // Nodes may leave the run. Only the launcher knows whether enough of them are left, and a lost
    // one does not count as a restart.
    bool is_elastic = false;
    // Among the ranks of this launcher, which share its memory. Several launchers may be on one
    // host, so the communicator's topology says something else.
    Topology place = {};
    std::string identity = {};
  };
  RunMemory(StoredRun stored, Launched launched);
  ~RunMemory() { close(); }
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  // The number of attempts before this one.
  int restarts() const { return stored_ ? stored_->file().attempt() : policy_.restarts(); }
  // The memory is the launcher's, and every attempt is a new process.
  bool is_launched() const { return stored_.has_value(); }

  // Collective, if is_launched(). Rank 0 takes over the newest point that the attempt before has
  // stored in any launcher's memory.
  void take_over(comm::Communicator& comm);
  // Whether the ranks have several launchers, and so several memories.
  bool has_copies() const { return is_launched() && place_.local_size < place_.world_size; }
  // Collective, if has_copies(): the other launchers' memories get rank 0's newest point, too. It
  // costs a broadcast of its bytes.
  void share_point(comm::Communicator& comm);

  RunTotals totals;
  LogDirectory logdir;  // locked until the run ends

  // Whether an attempt before this one began to write to the run's folder, as another process.
  bool has_begun_logs() const { return has_begun_logs_; }
  void begin_logs();

  // The loggers of the run. They are started in the first attempt and stay open.
  bool has_loggers() const { return has_loggers_; }
  const std::vector<std::shared_ptr<OnceLogger>>& loggers() const { return loggers_; }
  void set_loggers(std::vector<std::shared_ptr<OnceLogger>> loggers) {
    loggers_ = std::move(loggers);
    has_loggers_ = true;
    note_log_positions();
  }
  // What callbacks log now belongs to this stream (OnceLogger).
  void set_log_stream(int stream) {
    for (const auto& logger : loggers_) logger->set_stream(stream);
  }
  // The same for a start of the run, an epoch or a pass, until set_log_stream(0).
  void set_log_start(std::int64_t start) {
    for (const auto& logger : loggers_) logger->set_start(start);
  }
  // Closes them, after telling them how the run ends, if that is known. Warns if that fails.
  void close_loggers(const RunEnd* end = nullptr) noexcept;
  // The same for loggers that an attempt has left open, and unlocks the run's folder.
  void close() noexcept {
    close_loggers();
    logdir = {};
  }

  // Called at the beginning of every attempt, before anything changes the model. The first attempt
  // begins with the weights that the model has, and so does every other one.
  void begin_attempt(const Model& model);

  // The learning rates and the momenta with which the first attempt began. An optimizer of torch is
  // the caller's object, so a failed attempt leaves others in it.
  const optim::OptimizerPace& first_pace(const std::string& optimizer,
                                         const optim::OptimizerPace& now) {
    return first_paces_.try_emplace(optimizer, now).first->second;
  }

  // The last point; null before the first one.
  const KeptRun* point() const { return point_ ? &*point_ : nullptr; }
  // The run begins from a checkpoint, which is its first point.
  void set_first_point(KeptRun point) {
    point_ = std::move(point);
    is_first_point_ = true;
  }
  // Whether this run has made a point itself. The first point may be a checkpoint, which is of a
  // time before the callbacks and loggers of this run began.
  bool has_own_point() const { return point_ && !is_first_point_; }
  // Called when the loggers are open: the first point is at this position of theirs.
  void note_log_positions();
  // Called when an attempt has restored the run from the point: the loggers go back to it, too.
  void rewind_loggers();
  // Stores a new point. `began` is when the work for it began.
  void keep_point(KeptRun point, std::chrono::steady_clock::time_point began);
  // The next point is due when the run has gone on for kPointShare times as long as this one took.
  void set_next_point(std::chrono::steady_clock::time_point began);
  static constexpr int kPointShare = 400;
  // The point before the last one, whose memory the next one can use.
  StateDict& spare() { return spare_; }
  bool is_point_due() const { return std::chrono::steady_clock::now() >= next_point_; }
  // As much time again has passed since it was due.
  bool is_point_overdue() const { return std::chrono::steady_clock::now() >= latest_point_; }

  // Called after every batch.
  void count_batch();
  // Called after a batch, and at the end of the run: the recovery that is complete now, if the run
  // has failed since the last call.
  std::optional<Recovery> complete_recovery();
  // How many were completed.
  std::int64_t recoveries() const { return recoveries_; }
  RestartCount restart_count() const {
    return {.restart = restarts(),
            .most = is_elastic_ ? std::nullopt : std::optional(policy_.max_restarts())};
  }

  // Called by the loop when an attempt fails, before callbacks learn of it: whether another attempt
  // follows. The answer is kept for try_again(). `may_be_node` says that a node may have been lost:
  // in a run whose nodes may leave, that alone does not end it.
  bool will_restart(const process::RankFailure& failure, bool may_be_node = false);
  // An attempt calls on_run_start of the callbacks, which are the caller's objects. So on_run_end
  // must be called, too, however the run ends.
  void begin_callbacks() { has_begun_callbacks_ = true; }
  bool has_begun_callbacks() const { return has_begun_callbacks_; }
  // How far the last attempt was whose callbacks had begun.
  void keep_progress(const ProgressState& progress) { progress_ = progress; }
  const ProgressState& kept_progress() const { return progress_; }
  // The run ends for its callbacks: whatever happens now, there is no other attempt.
  void end() {
    decision_ = false;
    has_begun_callbacks_ = false;
  }
  // Stores that the run is finished: a program that is started again does not train it again.
  void finish();
  // Tells the launcher of a failure of this rank, or that another rank was lost or hangs.
  void note_failure(const process::RankFailure& failure);
  // Called when the workers of a failed attempt are gone: whether to make another attempt. Waits as
  // long as RestartPolicy::backoff() says.
  bool try_again(const Engine::AttemptFailure& failure);
  // If there are no more attempts: why, and all failures. Empty if there was one failure only.
  std::string describe_refusal() const { return policy_.describe_refusal(); }

 private:
  void store();
  // Stores the same point again, with the recoveries of now.
  void store_again();
  void set_batches(std::int64_t since_point);
  // Stores a point of another host. Warns if that is not possible.
  void take(const process::StoredPoint& point);

  RestartPolicy policy_;
  RunTotals stored_totals_;  // those of the stored point
  std::optional<StoredRun> stored_;
  bool is_elastic_ = false;
  Topology place_ = {};
  std::string identity_;
  bool has_begun_logs_ = false;
  bool is_finished_ = false;
  std::vector<std::shared_ptr<OnceLogger>> loggers_;
  bool has_loggers_ = false;
  std::optional<StateDict> first_weights_;
  std::vector<bool> first_trainable_;                        // requires_grad of the parameters
  std::map<std::string, optim::OptimizerPace> first_paces_;  // by optimizer
  std::optional<KeptRun> point_;
  bool is_first_point_ = false;
  StateDict spare_;
  std::vector<OnceLogger::Positions> point_positions_;  // of the loggers
  std::chrono::steady_clock::time_point next_point_ = {};
  std::chrono::steady_clock::time_point latest_point_ =
      std::chrono::steady_clock::time_point::max();  // known after the first point
  std::int64_t batches_since_point_ = 0;
  std::optional<bool> decision_;      // of will_restart()
  bool has_begun_callbacks_ = false;  // and has not ended them
  ProgressState progress_ = {};
  std::optional<Recovery> unfinished_;  // until the next finished batch
  std::chrono::steady_clock::time_point failed_at_ = {};
  std::int64_t recoveries_ = 0;
};

}  // namespace lockstep
