// The options of train(). Designated initialisers must follow the order of the fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/named.h"
#include "lockstep/base/precision.h"
#include "lockstep/comm/wire.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/progress_bar.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/model.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/restore.h"
#include "lockstep/train/step_settings.h"
#include "lockstep/train/weights.h"

namespace lockstep {

struct TrainOptions {
  // What is trained, and on which data.
  Model model;                     // or override get_model()
  Named<Model> models;             // instead of `model`: several networks by name
  Criterion criterion;             // or override get_criterion()
  Named<Criterion> criterions;     // instead of `criterion`, by any names
  optim::OptimizerSpec optimizer;  // or override get_optimizer(); trains all networks
  // Instead of `optimizer`: one for each network that is trained, by the name of the network. A
  // network without one is in evaluation mode during the run.
  Named<optim::OptimizerSpec> optimizers;
  optim::SchedulerSpec scheduler;          // of each optimizer; none: the learning rate is constant
  Named<optim::SchedulerSpec> schedulers;  // instead of `scheduler`, by the name of the optimizer
  Phases phases;  // of every step (train/phase.h); none: one loss for all optimizers
  // Names begin with train, valid, test or infer. A loader's batch_size is the size of one shard of
  // a batch. Its global_batch_size, if given instead, is the size of all shards together.
  data::Loaders loaders;

  // The run.
  std::optional<std::uint64_t> seed;  // of sample order and random layers; default 42, or the one
                                      // of the checkpoint that is resumed
  HParams hparams;                    // logged with the run
  std::map<std::string, std::string> documents;  // saved in every checkpoint; for example a config
  std::int64_t num_epochs = 1;                   // in total, including epochs before a resume
  // More about its length: docs/guide/length-of-a-run.md. A step is an update of the model.
  std::optional<std::int64_t> num_steps;        // in total, instead of num_epochs
  std::optional<std::int64_t> steps_per_epoch;  // default: those of one pass over the train loaders
  // Evaluates in every n-th epoch, and in the last one.
  std::int64_t valid_every = 1;
  // For a quick look, by the beginning of loaders' names: at most that many batches of each, or a
  // share up to 1.0. {{"train", 10}, {"valid", 0.1}}
  std::map<std::string, std::variant<std::int64_t, double>> limit_batches;
  std::optional<std::filesystem::path> logdir;  // logs, checkpoints, summary.json; none: no files
  std::optional<std::string> resume;  // continue from a checkpoint: its path, or "last", "best",
                                      // "epoch.0007" in logdir
  // A file with the first weights of the model: a checkpoint, or a state_dict saved by Python. The
  // run says what it took. {"resnet18.pth", {.strict = false}}: see train/weights.h.
  Weights weights;
  std::vector<std::string> weights_skip;  // the same as `skip` of weights
  // Instead of `weights`: files for some of the networks, by the network's name. The names of
  // weights in such a file are those of the network alone.
  Named<Weights> network_weights;
  // Other parts of earlier runs with which this one begins: the optimizer's state, for example. A
  // run with `resume` does not read them.
  RestoreOptions restore;
  std::optional<std::string> valid_loader;  // its metric decides the best epoch; none: the newest
  std::optional<std::string> valid_metric;  // default "loss"
  // Whether a smaller valid_metric is better. By default the metric decides: a loss is better when
  // it is smaller; accuracy, precision, recall, F1 and AUC are better when they are larger.
  // Required for all other metrics.
  std::optional<bool> minimize_valid_metric;

  // What the run shows, and for how long it runs.
  bool verbose = false;  // a progress bar (plain lines if there is no terminal)
  ProgressBars progress_bars = ProgressBars::kPasses;  // if verbose: one per pass, or one per run
  bool timeit = false;                                 // times of data, model and batch as metrics
  bool check = false;    // a quick check of the setup: 3 epochs of 3 batches
  bool overfit = false;  // each loader repeats its first batch: the loss must fall
  // Before the run starts, 2 samples of each loader go through model, criterion and metrics, so
  // that a mistake in validation is found before the first epoch (docs/decisions/plan.md). Set it
  // to false for a model that accepts whole batches only.
  bool dry_run = true;
  bool profile = false;  // how the time is spent: a table, and logdir/profile.json
  // The time in each of LibTorch's operators on rank 0: a table, and logdir/operators.txt. Every
  // call of an operator takes a little longer then.
  bool profile_operators = false;
  bool load_best_on_end = false;  // the model ends with the weights of its best epoch
  // The runner keeps what continue_training() needs: a copy of the weights and of the states of the
  // optimizers, until its next train().
  bool keep_run = false;

  // The step.
  std::int64_t accumulation_steps = 1;    // batches whose gradients make one update
  std::optional<double> clip_grad_norm;   // the largest L2 norm of all gradients together
  std::optional<double> clip_grad_value;  // the largest absolute value of a gradient's element
  // Your own clipping, instead of these two: changes the mean gradients of an update in place. It
  // gets those of all parameters that take part in the update, in the order of the parameters; with
  // phases, those of the phase. It is called once for each copy of the gradients: on every rank, or
  // on rank 0 only if the workers share memory. So it must give the same result on every rank.
  GradientFunction clip_grad;
  // With kBf16, gradients are summed in bfloat16, and hosts send each other half the bytes. Every
  // gradient of a shard and every sum is rounded, on one worker, too, so that the results are still
  // the same for any number of workers. Gradients of float64 are not changed.
  Wire wire = Wire::kFp32;
  // The learning rates are meant for a step of this many samples. They are multiplied by (samples
  // of a step) / (this number), and so are the rates that a scheduler names, max_lr for example. A
  // step has batch_size x shards x accumulation_steps samples. The first line of the run shows the
  // factor. Default: rates are taken as they are.
  std::optional<std::int64_t> lr_base_batch_size;
  bool log_gradient_norm = false;  // the metric "gradient/norm", which clip_grad_norm adds, too
  bool terminate_on_nan = false;   // a loss that is not finite ends the run

  // How the model is computed: "fp32", "bf16" or "fp16" (docs/guide/precision.md). Parameters,
  // gradients and checkpoints are float32 in any case.
  Precision precision;
  bool fp16 = false;  // the same as precision = "fp16", for programs that come from Catalyst
  bool amp = false;   // the precision that the device is made for: fp16 on a GPU, bf16 on the CPU
  // How the loss is scaled. Default: with fp16, as PyTorch's GradScaler does it; else not at all.
  std::optional<optim::GradScalerOptions> grad_scaler;

  // What observes the run.
  Callbacks callbacks;
  std::vector<std::shared_ptr<Logger>> loggers;  // in addition to those of logdir
  bool console = true;                           // one line per loader and epoch on standard output
  // TensorBoard, CSV and MLflow get every batch's metrics, too. With several workers this costs a
  // message of each of them per batch.
  bool log_batches = false;

  // Where the run takes place.
  bool ddp = false;            // several workers: one per core or GPU of this machine
  std::optional<int> workers;  // the number of workers instead; needs ddp
  // Parts of every batch, at least one per worker. Default: one per worker, so a batch has
  // (loader's batch_size) x (workers) samples. Results depend on the number of shards, not on the
  // number of workers. Needs ddp.
  std::optional<int> shards;
  // How many times workers are made anew after one of them died, hung or threw. The run goes on
  // from a snapshot in memory and ends with the same weights (docs/guide/recovery.md). Needs ddp,
  // or an engine with workers. Under `lockstep launch`, its --max-restarts counts instead.
  int max_restarts = 0;
  // If a worker cannot be replaced, the run goes on with fewer workers, but not with fewer than
  // this. The number of shards stays, and so do the results.
  int min_workers = 1;
  std::shared_ptr<Engine> engine;  // all other settings; default: the GPU, else the CPU
};

struct TrainResult {
  Model model;             // after training, or of the best epoch with load_best_on_end
  Named<Model> models;     // its networks by name
  double best_metric = 0;  // of valid_metric; NaN without a valid_loader
  std::int64_t best_epoch = 0;
  EpochMetrics best_metrics;
  EpochMetrics last_metrics;
  std::int64_t epochs = 0;                       // trained by this call
  std::int64_t steps = 0;                        // updates of the model by this call
  std::map<std::int64_t, EpochMetrics> history;  // of every finished epoch, also before a resume
  // The best of the saved files. It is of another epoch than best_epoch if that was not saved, or
  // was not better by min_delta. None if the files are chosen by another metric and differ.
  std::optional<std::filesystem::path> best_checkpoint;
  std::optional<std::filesystem::path> last_checkpoint;
  std::optional<std::string> stop_reason;  // why it ended before num_epochs, if it did
  std::string weights_hash;                // of the weights after the last step
  double seconds = 0;                      // of this call
  int rank = 0;  // of this process; more than 0 only if a launcher started it
  double train_samples_per_second = 0;
  std::int64_t recoveries = 0;     // how many times workers were made anew (max_restarts)
  std::int64_t skipped_steps = 0;  // updates of the run with gradients that were not finite
};

struct EvaluateOptions {
  data::Loader loader;
  Model model;                  // default: the one this runner trained last
  Named<Model> models;          // instead of `model`: several networks by name
  Criterion criterion;          // default: the same; without one there is no loss
  Named<Criterion> criterions;  // instead of `criterion`
  Phases phases;                // default: those of this runner's last training
  Callbacks callbacks;
  std::optional<std::string> resume;  // a checkpoint, or Python's state_dict: take its weights
  std::uint64_t seed = 42;
  bool verbose = false;  // a progress bar
  std::shared_ptr<Engine> engine;
  std::string name = "valid";  // of the loader, as callbacks and the progress bar see it
  // Default: that of the checkpoint `resume`, or of this runner's last training, or fp32.
  std::optional<Precision> precision = {};
  // Instead of `resume`: with changes of names, as in TrainOptions. Warns if the model keeps some
  // of its own weights.
  Weights weights = {};
};

struct PredictOptions {
  data::Loader loader;
  Model model;                        // default: the one this runner trained last
  std::optional<std::string> resume;  // a checkpoint, or Python's state_dict: take its weights
  std::uint64_t seed = 42;
  std::shared_ptr<Engine> engine;
  std::optional<Precision> precision = {};  // default: as in EvaluateOptions
  Weights weights = {};                     // as in EvaluateOptions
};

// Throws ConfigError for an option that makes no sense, whatever is trained.
void check_options(const TrainOptions& options);

}  // namespace lockstep
