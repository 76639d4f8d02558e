// One pass over one loader: the inner loop, the same for training and evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch_window.h"
#include "lockstep/log/profiler.h"
#include "lockstep/metric/additive.h"
#include "lockstep/metric/moments.h"
#include "lockstep/train/batch_feed.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/device_copies.h"
#include "lockstep/train/late_losses.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/random.h"
#include "lockstep/train/side_training.h"
#include "lockstep/train/state.h"
#include "lockstep/train/train_step.h"

namespace lockstep {

struct PassSettings {
  std::string loss_key = "loss";  // the batch's key under which handle_batch puts the loss
  // A loss that is not finite ends the run: before its backward(), or, if losses are read late,
  // after the update with it.
  bool terminate_on_nan = false;
  bool log_batches = false;  // every batch's metrics go to the loggers, too; the same on all ranks
  std::int64_t shards = 1;   // parts of every batch, over all workers
  bool unseen_gradients = false;          // no callback of any rank reads gradients
  std::vector<Phase> phases = {Phase{}};  // a single one has no name
  std::vector<Model> untrained = {};      // networks that stay in evaluation mode
  double judged_seconds = 3;      // passes of at least this length are judged: is the loader slow?
  bool replaces_workers = false;  // a lost worker does not end the run: see obey_signals()
  // Of a run that may be restarted, on rank 0: called after every batch; returns whether a point is
  // due. Empty on the other ranks.
  std::function<bool()> after_batch = {};
  std::function<void()> take_point = {};  // collective; called on all ranks if one is due
  // Calls the function that it gets, which calls on_loader_start. Empty: it is called directly.
  std::function<void(const std::function<void()>& hooks)> begin = {};
  // Of the device, which must outlive the pass. Then the next batch is copied while the device
  // works on this one, and losses are read late. Null: what is read is used at once.
  DeviceCopies* copies = nullptr;
};

class LoaderPass {
 public:
  // There is one step for each phase, or none if nothing is trained. All references must outlive
  // the pass. state.comm must be set.
  LoaderPass(State& state, const std::vector<CallbackPtr>& callbacks,
             std::function<void(State&)> handle_batch, std::span<TrainStep> steps,
             Profiler& profiler, PassSettings settings);

  struct Start {
    std::string loader;
    std::int64_t index = 0;           // of the loader in the epoch
    data::WindowOptions window = {};  // its batches; the run's seed is used
  };

  // Calls the hooks from on_loader_start to on_loader_end. Puts the loader's metrics into
  // state.loader_metrics.
  void run(const Start& start);

  // The modes of the modules in the last pass that trained, after on_loader_start.
  const Model::Modes& train_modes() const { return train_modes_; }

  // "loader 'train', epoch 2, batch 3" after run() threw inside a batch; else empty.
  const std::string& failed_in() const { return failed_in_; }

  // Averages of batch metrics so far, for a checkpoint inside the pass. gather() is collective.
  // Call it first: it brings the averages of all ranks to rank 0.
  void gather();
  StateDict averages() const;
  void load_averages(const StateDict& saved);

 private:
  // A global batch of the pass.
  struct Place {
    const Start& start;
    const data::BatchWindow& epoch;
    data::BatchWindow::Stream& stream;  // of this worker's shards
    std::int64_t index = 0;
  };
  // The loss of a phase of a shard.
  struct PhaseLoss {
    std::size_t phase = 0;
    torch::Tensor loss;
    LossOver over;
  };
  // What updates add to the metrics of a batch.
  struct UpdateMetrics {
    Metrics now;
    std::vector<LateMetric> late;
  };
  struct DoneShard {
    ShardState state = {};               // if it had to make room for another one
    std::vector<PhaseLoss> losses = {};  // empty if the only phase has no name
  };

  void one_batch(const Place& at);
  bool takes_place(std::size_t phase) const;
  void run_phase(const Place& at, std::size_t phase, UpdateMetrics& of_updates);
  void read_shard(const Place& at, std::int64_t shard);
  Batch read_batch(const Place& at, std::int64_t shard);
  void read_ahead(const Place& at);
  void return_to_shard(std::size_t index);
  void keep_shard(std::size_t index, std::size_t phase);
  void handle_shard(const Place& at, std::size_t phase);
  void forward();
  void update(std::size_t phase, UpdateMetrics& of_updates);
  TrainStep::Observe gradient_observer();
  bool between_steps() const;
  void set_modes();
  static Metrics arrived(UpdateMetrics metrics);
  void finish_shards(UpdateMetrics of_updates);
  void agree_on_metrics();
  void decide(bool wants_point = false);
  DrawKey key_of(const Place& at, std::int64_t shard, Draws draws) const;
  void seed_model(const Place& at, std::size_t phase) const;
  void check_loss();
  void check_late_losses();
  [[noreturn]] void fail_on_loss(const std::string& value) const;
  void warn_of_loss(const std::string& name, double loss);
  void warn_of_wait(const data::Loader& loader, double seconds);
  std::string place() const;
  std::string in_phase() const;  // for messages
  void backward(TrainStep& step);
  bool has_one_shard() const { return shards_.count() == 1; }
  bool has_phases() const { return !settings_.phases.front().name.empty(); }
  std::string loss_name(std::size_t phase) const;  // of its metric
  std::optional<double> shown_loss(const std::string& name, const torch::Tensor& loss,
                                   const LossOver& over);
  void show_losses(const std::vector<PhaseLoss>& losses);
  void add_total_loss(Metrics& metrics) const;
  void record_batch_metrics(const std::vector<PhaseLoss>& losses);
  Metrics batch_means();
  void log_batch();
  void record(const std::string& name, double value, const LossOver& over);
  Metrics running_metrics() const;

  State& state_;
  const std::vector<CallbackPtr>& callbacks_;
  std::function<void(State&)> handle_batch_;
  std::span<TrainStep> steps_;  // by phase
  Profiler& profiler_;
  PassSettings settings_;
  comm::LeafRange shards_;       // this worker's
  std::vector<DoneShard> done_;  // shards of the current batch that wait for on_batch_end
  std::size_t counted_phase_;    // its updates are the steps of the run
  bool is_read_ = false;         // the shards of the current batch are in done_
  // A loss that terminate_on_nan examines when its value has arrived.
  struct LateCheck {
    torch::Tensor loss;
    std::string phase;
  };
  BatchFeed feed_;
  LateLosses losses_;
  std::vector<LateCheck> late_checks_;
  SideTraining side_training_;
  Model::Modes train_modes_;
  std::string failed_in_;
  bool warned_of_loss_ = false;  // a loss that is not finite; once per run
  bool warned_of_wait_ = false;  // a slow loader; once per run
  double waited_ = 0;            // for batches of the pass, in seconds
  std::map<std::string, metric::Additive, std::less<>> averages_;
  // Of this worker's shards of the current batch, with log_batches.
  std::map<std::string, metric::Moments, std::less<>> batch_means_;
  Metrics only_shard_;  // instead of means, if a batch has one shard
};

}  // namespace lockstep
