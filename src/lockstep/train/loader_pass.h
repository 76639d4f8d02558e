// One pass over one loader: the inner loop, the same for training and evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/batch_window.h"
#include "lockstep/log/profiler.h"
#include "lockstep/metric/additive.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/random.h"
#include "lockstep/train/state.h"
#include "lockstep/train/train_step.h"

namespace lockstep {

struct PassSettings {
  std::string loss_key = "loss";  // the batch's key under which handle_batch puts the loss
  bool terminate_on_nan = false;  // a loss that is not finite ends the run
  bool log_batches = false;       // every batch's metrics go to the loggers, too
  std::int64_t shards = 1;        // parts of every batch, over all workers
  bool unseen_gradients = false;  // no callback of any rank reads gradients
};

class LoaderPass {
 public:
  // `step` is null if nothing is trained. All references must outlive the pass. state.comm must be
  // set.
  LoaderPass(State& state, const std::vector<CallbackPtr>& callbacks,
             std::function<void(State&)> handle_batch, TrainStep* step, Profiler& profiler,
             PassSettings settings);

  struct Start {
    std::string loader;
    std::int64_t index = 0;           // of the loader in the epoch
    data::WindowOptions window = {};  // its batches; the run's seed is used
  };

  // Calls the hooks from on_loader_start to on_loader_end. Puts the loader's metrics into
  // state.loader_metrics.
  void run(const Start& start);

  // "loader 'train', epoch 2, batch 3" after run() threw inside a batch; else empty.
  const std::string& failed_in() const { return failed_in_; }

  // Averages of batch metrics so far, for a checkpoint inside the pass. gather() is collective.
  // Call it first: it brings the averages of all ranks to rank 0.
  void gather();
  StateDict averages() const;
  void load_averages(const StateDict& saved);

 private:
  void one_batch(const Start& start, std::int64_t index, const data::BatchWindow& epoch,
                 data::BatchWindow::Stream& stream);
  void one_shard(const Start& start, std::int64_t index, std::int64_t shard,
                 data::BatchWindow::Stream& stream);
  void update(Metrics& metrics);
  void finish_shards();
  void agree_on_metrics();
  void decide();
  void seed_shard(const Start& start, std::int64_t index, std::int64_t shard, Draws draws) const;
  void check_loss() const;
  void warn_of_loss(double loss);
  std::string place() const;
  void backward();
  void record_batch_metrics();
  void record(const std::string& name, double value, const LossOver& over);
  Metrics running_metrics() const;
  void add_hyper_metrics(Metrics& metrics) const;  // learning rate and momentum as they are now

  State& state_;
  const std::vector<CallbackPtr>& callbacks_;
  std::function<void(State&)> handle_batch_;
  TrainStep* step_;
  Profiler& profiler_;
  PassSettings settings_;
  comm::LeafRange shards_;        // this worker's
  std::vector<ShardState> done_;  // shards of the current batch that wait for on_batch_end
  std::string failed_in_;
  bool warned_of_loss_ = false;  // a loss that is not finite; once per run
  std::map<std::string, metric::Additive, std::less<>> averages_;
};

}  // namespace lockstep
