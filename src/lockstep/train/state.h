// What a run knows at a moment: the one struct that handle_batch and every callback see.
//
// The loop writes it. handle_batch and callbacks may write `batch` and `batch_metrics`, set the
// loss, and ask for things through the requests at the end; the rest is theirs to read.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/metrics.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/logger.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/loss.h"
#include "lockstep/train/model.h"

namespace lockstep {

// A loader's metric that something is decided by.
struct MetricKey {
  std::string loader;
  std::string metric = "loss";
};

// How the best epoch is told from the others.
struct Selection {
  std::optional<MetricKey> key;  // none: the newest epoch is the best
  bool minimize = true;          // smaller is better; resolved from what the user and metrics say
};

// The user, or the system, asked the process to end (Ctrl-C, SIGTERM).
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal_number);
  int signal_number;
};

struct Best {
  std::int64_t epoch = 0;  // 0: there is none yet
  double score = 0;
  EpochMetrics metrics;
};

struct State {
  // What is trained. The run owns it; it is valid while the run lasts.
  Model model;
  Criterion criterion;                    // may be empty
  optim::Optimizer* optimizer = nullptr;  // null when evaluating
  optim::Scheduler* scheduler = nullptr;  // null when there is none
  std::shared_ptr<Engine> engine;
  comm::Communicator* comm = nullptr;  // this worker's way to the others; never null in a run
  data::Loaders loaders;               // a callback may exchange some at an epoch's start
  std::vector<std::shared_ptr<Logger>> loggers;

  // What was asked for.
  std::optional<std::filesystem::path> logdir;
  std::uint64_t seed = 42;
  HParams hparams;
  Selection selection;

  // Where the run is. Epochs and a loader's batches count from 1.
  Progress progress;
  std::string loader;     // the loader at work
  bool is_train = false;  // its gradients are taken and the model is updated
  // A global batch, of all workers, is what counts below.
  std::int64_t loader_batch = 0;         // the batch at work
  std::int64_t loader_batches = 0;       // in this pass
  std::int64_t loader_samples = 0;       // handled in this pass so far, the batch at work included
  std::int64_t loader_sample_count = 0;  // in this pass altogether
  std::int64_t loader_batch_size = 0;    // of a full shard
  std::int64_t shard = 0;                // of the batch at work: this worker's part, `batch`

  Batch batch;  // the shard at work, and what was made of it
  // Numbers of the shard at work. The loader's metrics are their averages over all workers: each
  // number is a mean over the shard's samples, unless set_metric says what else it is a mean over.
  Metrics batch_metrics;
  Metrics loader_metrics;      // of this pass; complete when on_loader_end is over
  EpochMetrics epoch_metrics;  // of the epoch at work, by loader
  std::map<std::int64_t, EpochMetrics> history;  // of finished epochs
  Best best;
  std::optional<std::filesystem::path> best_checkpoint;  // set by whoever writes checkpoints
  std::optional<std::filesystem::path> last_checkpoint;
  bool last_is_resumable = false;  // last_checkpoint has the whole run, not the weights alone

  // The loss of the shard at work, for handle_batch: sets batch[loss_key], and says what the loss
  // is a mean over (train/loss.h). Throws DataError for a weight that is negative or not finite.
  void set_loss(torch::Tensor loss, const LossOver& over = {});
  // Adds another term to it. Terms that are means over different things make up a whole batch's
  // loss only where no batch is split: several shards, or accumulation, refuse them.
  void add_loss(const torch::Tensor& term, const LossOver& over = {});
  // What batch[loss_key] is a mean over. One that was put there without set_loss is over samples.
  LossOver loss_over() const;
  // A number of the shard at work and what it is a mean over, for the loader's average.
  void set_metric(const std::string& name, double value, const LossOver& over);
  std::string loss_key = "loss";  // where the batch has its loss
  // What was said by the three above; the loop keeps it with the shard.
  struct Said {
    torch::Tensor loss;  // the one that `loss_over` is about
    LossOver loss_over;
    std::map<std::string, LossOver, std::less<>> metrics;
  };
  Said said;
  // Nothing but the loop's backward() asks for gradients of parameters in this batch.
  bool may_write_gradients = false;

  // Metrics of this pass so far: averages of batch metrics, and what callbacks know at no cost.
  std::function<Metrics()> running_metrics;

  std::exception_ptr exception;  // what ended the run, in on_exception and on_run_end

  // Requests: the end of this loader's pass after the batch at work, the end of the run after the
  // epoch at work. One worker's request is everybody's.
  void request_loader_end() { loader_end_requested = true; }
  void request_stop(std::string why) { stop_reason = std::move(why); }
  bool loader_end_requested = false;
  std::optional<std::string> stop_reason;

  // Collective: changes the model's parameters and buffers by `change`, which every rank passes. It
  // is called once for each copy of the parameters: on rank 0 alone where all workers have them in
  // common. After it, all ranks have what rank 0 has, frozen parameters and buffers included.
  std::function<void(const std::function<void()>& change)> change_model;

  // The whole run as a checkpoint holds it, on rank 0; elsewhere empty. Throws Error unless
  // can_snapshot. Collective, but for on_epoch_end, where it is rank 0's alone.
  std::function<StateDict()> snapshot;
  // In on_step where no gradient waits for a later batch, in on_epoch_end, and in on_exception
  // after an interrupt: a run resumed from a snapshot goes on exactly.
  bool can_snapshot = false;
  // The metrics every loader will have, where that is known.
  std::optional<std::vector<std::string>> known_metrics;
  // Which value of a metric is the better one, where the loss or a callback says.
  std::function<std::optional<Better>(std::string_view metric)> better;
};

// Whether the model is trained on a loader of this name, or evaluated.
bool is_train_loader(std::string_view name);

// Throws ConfigError, naming `who` asks and the nearest right name, where there is no such loader,
// or where it is known that nobody computes such a metric. For Callback::check.
void check_metric_key(const State& state, const MetricKey& key, std::string_view who);

// Whether a smaller value of the metric is the better one: as was `said`; else as the metric itself
// says. Throws ConfigError, naming `who` asks and the `option` that would say it, where neither
// does: a guess would choose the worst epoch in silence.
struct DirectionRequest {
  std::optional<bool> said;  // by the user: whether to minimize
  std::string metric;        // its name
  std::string_view who;      // asks
  std::string_view option;   // by which the user can say it
};
bool minimizes(const State& state, const DirectionRequest& request);

// The metric's value in this epoch. Throws ConfigError likewise.
double metric_value(const State& state, const MetricKey& key, std::string_view who);

}  // namespace lockstep
