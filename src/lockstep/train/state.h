// The state of a run at one moment: the one struct that handle_batch and every callback see. It
// consists of groups, by how long their values last: the run, its progress, a pass over a loader, a
// shard of a batch, requests. The groups are base classes, so all fields are used directly:
// state.model, state.batch. Code that writes a group writes it as a whole.
//
// The loop writes the state. handle_batch and callbacks may write `batch`, `batch_metrics` and
// `user`, set the loss, exchange `loaders`, and make requests. They only read the rest.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/metrics.h"
#include "lockstep/base/named.h"
#include "lockstep/base/precision.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/logger.h"
#include "lockstep/loss/over.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/model.h"
#include "lockstep/train/selection.h"
#include "lockstep/train/user_values.h"

namespace lockstep {

class AveragedWeights;
class Checkpointer;

// The user or the system requested the process to end (Ctrl-C, SIGTERM).
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

// What a run consists of. Set before it starts.
struct RunState {
  // What is trained. The run owns these objects; they are valid until it ends.
  Model model;                            // all networks together
  Named<Model> models;                    // its networks; one that was given as .model is "model"
  Criterion criterion;                    // empty if there is none, or if there are several
  Named<Criterion> criterions;            // one that was given as .criterion is "criterion"
  optim::Optimizer* optimizer = nullptr;  // the first one; null when evaluating
  optim::Scheduler* scheduler = nullptr;  // the first one; null when there is none
  // By the names of TrainOptions; one that was given as .optimizer is "optimizer". A scheduler has
  // the name of its optimizer.
  Named<optim::Optimizer*> optimizers;
  Named<optim::Scheduler*> schedulers;
  std::shared_ptr<Engine> engine;
  Precision precision;                  // of forward pass and loss
  optim::GradScaler* scaler = nullptr;  // scales the loss; null if it is not scaled
  comm::Communicator* comm = nullptr;   // connects this worker to the others; never null in a run
  data::Loaders loaders;                // a callback may exchange some at the start of an epoch
  std::vector<std::shared_ptr<Logger>> loggers;

  int restarts = 0;  // how many times the workers were made anew before this attempt (max_restarts)
  // In on_run_start, on_epoch_start and on_loader_start: the run, epoch or pass continues from a
  // checkpoint, or from a point after a failure. So the hook was called before, and the model
  // already has what it changed then.
  bool continues = false;

  // What the options request.
  std::optional<std::filesystem::path> logdir;
  std::uint64_t seed = 42;
  HParams hparams;
  Selection selection;            // of the best epoch
  std::string loss_key = "loss";  // the key of the loss in the batch

  // What is known about metrics: those that every loader will have, and which value of a metric is
  // better, if the loss or a callback says so.
  std::optional<std::vector<std::string>> known_metrics;
  std::function<std::optional<Better>(std::string_view metric)> better;

  // Saves the run and knows its best epoch (train/checkpointer.h). Null when evaluating.
  Checkpointer* checkpointer = nullptr;

  // What is evaluated and saved instead of the trained weights, if a callback averages them
  // (train/averaged_weights.h). Null when evaluating.
  AveragedWeights* averaged = nullptr;

  // Collective: changes the model's parameters and buffers by `change`, which every rank passes.
  // `change` is called once for each copy of the parameters, so only on rank 0 if all workers share
  // one copy. Afterwards all ranks have rank 0's values, including frozen parameters and buffers.
  std::function<void(const std::function<void()>& change)> change_model;

  // Calls on_outputs of all callbacks. For handle_batch: call it when the outputs are in the batch,
  // before the loss is computed. SupervisedRunner does this.
  std::function<void()> outputs_ready;

  // Metrics of this pass so far: averages of batch metrics, and the running_metrics() of callbacks.
  std::function<Metrics()> running_metrics;
};

// How far the run is, and what it has reached.
struct ProgressState {
  Progress progress;                             // epochs count from 1
  bool inside_epoch = false;                     // an epoch is under way
  std::int64_t steps_before_epoch = 0;           // progress.update_step when the epoch began
  EpochMetrics epoch_metrics;                    // of the current epoch, by loader
  std::map<std::int64_t, EpochMetrics> history;  // of finished epochs
  Best best;
  std::optional<std::filesystem::path> best_checkpoint;  // set by the CheckpointCallback
  std::optional<std::filesystem::path> last_checkpoint;
  bool last_is_resumable = false;  // last_checkpoint has the whole run, not only the weights
  // True in on_step if no gradient waits for a later batch, in on_epoch_end, and in on_exception
  // after an interrupt. A run that is resumed from such a snapshot continues exactly.
  bool can_snapshot = false;
  std::exception_ptr exception;  // what ended the run, in on_exception and on_run_end
  UserValues user;               // your own values, by key; what can be saved is in checkpoints
};

// The current pass over a loader. Batches are global batches, which are those of all workers
// together; they count from 1.
struct PassState {
  std::string loader;                    // its name
  bool is_train = false;                 // gradients are computed and the model is updated
  std::int64_t loader_batch = 0;         // the current batch
  std::int64_t loader_batches = 0;       // in this pass
  std::int64_t loader_samples = 0;       // handled in this pass so far, including the current batch
  std::int64_t loader_sample_count = 0;  // in this pass in total
  std::int64_t loader_batch_size = 0;    // of a full shard
  Metrics loader_metrics = {};           // complete after on_loader_end
  std::string phase = {};                // the current phase of the step; empty outside of phases
  // The optimizers that the current batch has stepped so far.
  std::vector<std::string> stepped = {};
  // In this pass, gradients of parameters are computed by the loop's backward() and nothing else.
  bool may_write_gradients = false;
};

// The current shard: this worker's part of the current batch, or one of several.
struct ShardState {
  std::int64_t shard = 0;  // its number among those of all workers
  Batch batch = {};        // its samples, outputs and loss
  // Its numbers. The loader's metrics are their averages over all workers: each number is a mean
  // over the shard's samples, unless set_metric says what else it is a mean over.
  Metrics batch_metrics = {};
  // What the calls of set_loss, add_loss and set_metric stated.
  struct Said {
    torch::Tensor loss;  // the loss that `loss_over` describes
    LossOver loss_over;
    std::map<std::string, LossOver, std::less<>> metrics;
  };
  Said said = {};
  // The number of samples, if the loader's batch had no tensor that shows it, only lists or nested
  // batches. Tensors that handle_batch adds need not have one row per sample.
  std::optional<std::int64_t> listed_samples = {};

  std::int64_t samples() const { return listed_samples.value_or(batch.size()); }
};

// What callbacks request. A request of one worker applies to all workers.
struct RequestState {
  // The end of this loader's pass after the current batch.
  void request_loader_end() { loader_end_requested = true; }
  // The end of the run after the current epoch.
  void request_stop(std::string why) { stop_reason = std::move(why); }

  bool loader_end_requested = false;
  std::optional<std::string> stop_reason;
  std::set<std::string, std::less<>> skipped_loaders;  // by callbacks, in the current epoch
  std::set<std::string, std::less<>> idle_loaders;     // that have no pass in the current epoch
  // Whether the loader has no pass in the current epoch, for one reason or the other.
  bool is_left_out(std::string_view loader) const {
    return skipped_loaders.contains(loader) || idle_loaders.contains(loader);
  }
};

struct State : RunState, ProgressState, PassState, ShardState, RequestState {
  // Sets the loss of the current shard, for handle_batch: sets batch[loss_key] and says what the
  // loss is a mean over (loss/over.h). Throws DataError for a weight that is negative or not
  // finite.
  void set_loss(torch::Tensor loss, const LossOver& over = {});
  // Adds another term to the loss. Terms that are means over different things are allowed only if
  // no batch is split, that is with one shard and without accumulation.
  void add_loss(const torch::Tensor& term, const LossOver& over = {});
  // What batch[loss_key] is a mean over. A loss that was put there without set_loss is a mean over
  // samples.
  LossOver loss_over() const;
  // Sets a number of the current shard and what it is a mean over, for the loader's average.
  void set_metric(const std::string& name, double value, const LossOver& over);

  // Gives all loggers an image of the current loader, or a file (log/artifact.h). Only rank 0 has
  // loggers, so calls on other ranks do nothing.
  void log_image(const std::string& tag, const Image& image) const;
  void log_artifact(const Artifact& artifact) const;

  // Leaves a loader out of the current epoch, for on_epoch_start in train(), or for on_loader_end
  // of an earlier loader. Unlike other requests, all ranks must make it. Throws ConfigError if
  // there is no such loader.
  void skip_loader(const std::string& name);

  // The groups that are written as a whole.
  void set_pass(PassState pass) { static_cast<PassState&>(*this) = std::move(pass); }
  void set_shard(ShardState&& shard) { static_cast<ShardState&>(*this) = std::move(shard); }
  // Moves the current shard out, so that another one can be handled.
  ShardState take_shard() { return std::exchange(static_cast<ShardState&>(*this), ShardState{}); }
};

// The learning rates and momenta as they are now: "lr" and "momentum", or "lr/generator" and so on
// if there are several optimizers.
Metrics hyper_metrics(const RunState& run);

// Whether the model is trained on a loader of this name, or evaluated.
bool is_train_loader(std::string_view name);
// Whether no later loader of the current epoch is trained on. For train().
bool is_last_train_loader(const State& state, std::string_view name);

// Throws ConfigError if there is no such loader, or if it is known that no callback or runner
// computes such a metric. The message names `asked_by`, which needs the metric, and the nearest
// right name. For Callback::check.
void check_metric_key(const RunState& run, const MetricKey& key, std::string_view asked_by);

// Whether a smaller value of the metric is better: as `said`; else as the metric itself says.
// Throws ConfigError if neither says it, because a guess could choose the worst epoch silently. The
// message names `asked_by`, which needs the direction, and the `option` that sets it.
struct DirectionRequest {
  std::optional<bool> said;   // by the user: whether to minimize
  std::string metric;         // its name
  std::string_view asked_by;  // needs to know it; named in the message
  std::string_view option;    // with which the user can set it
};
bool minimizes(const RunState& run, const DirectionRequest& request);

// The metric by which a callback compares epochs: its own, or valid_loader's. Throws ConfigError as
// check_metric_key and minimizes do. No key: the callback has no metric, and neither has the run.
struct SelectionRequest {
  std::optional<MetricKey> metric;  // the callback's own
  std::optional<bool> minimize;     // as its options say
  std::string_view asked_by;        // its name, for messages
};
Selection selection_for(const RunState& run, const SelectionRequest& request);

// The metric's value in this epoch. Throws ConfigError as check_metric_key does.
double metric_value(const ProgressState& reached, const MetricKey& key, std::string_view asked_by);
// The same, but nothing if the loader was left out of this epoch (valid_every, skip_loader).
std::optional<double> metric_if_run(const State& state, const MetricKey& key,
                                    std::string_view asked_by);

}  // namespace lockstep
