// A runner knows what to do with one batch and where the parts of a run come from; train() does the
// rest. Derive from Runner (or from SupervisedRunner) and override what differs for you:
//
//   class Autoencoder : public ls::Runner {
//     void handle_batch(ls::State& s) override {
//       auto output = s.model(s.batch["features"]);
//       s.set_loss(torch::mse_loss(output, s.batch["features"]));
//     }
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/loaders.h"
#include "lockstep/data/sampler.h"
#include "lockstep/runner/predictions.h"
#include "lockstep/runner/replay.h"
#include "lockstep/runner/stages.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"
#include "lockstep/train/supervised_keys.h"

namespace lockstep {

struct KeptRun;
struct Plan;
struct RunnerParts;

// Data sets by the names of their loaders, in the order in which an epoch goes through them.
using Datasets = std::vector<std::pair<std::string, data::DatasetPtr>>;
// Samplers by the names of their loaders.
using Samplers = std::map<std::string, std::shared_ptr<const data::Sampler>>;

// How long a run is that goes on: one of the two, in total, with all that was trained before.
struct ContinueOptions {
  std::optional<std::int64_t> num_epochs = std::nullopt;
  std::optional<std::int64_t> num_steps = std::nullopt;
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Trains, and returns once, with the trained model. Ctrl-C and SIGTERM end the training after the
  // current batch, with a checkpoint if there is a logdir; then the signal has its usual effect.
  TrainResult train(TrainOptions options);

  // Trains one stage after the other, and returns the result of the last one. Weights go on from
  // stage to stage, with the best ones if a stage has load_best_on_end. A model that get_model() or
  // get_models() makes is made in the first stage only. Logs and checkpoints are in logdir/<name of
  // the stage>.
  TrainResult train_stages(std::vector<Stage> stages, const StagesOptions& options = {});

  // Makes the last train() of this runner longer: the same options, model, optimizer, scheduler,
  // callbacks and files, from where it ended. The result is that of one longer run, to the bit,
  // with three exceptions:
  // - A scheduler may depend on the length of the run. One that cannot go on refuses.
  // - With valid_every, the last epoch of train() was evaluated, and a longer run may leave that
  //   evaluation out. It counts for the best epoch, early stopping and ReduceLROnPlateau.
  // - If num_steps ended train() inside an epoch, that epoch is over, and the next one follows.
  //
  //   runner.train({…, .num_epochs = 5, .keep_run = true});
  //   runner.continue_training({.num_epochs = 10});
  //
  // Throws ConfigError if no train() has finished, or if its keep_run was false.
  TrainResult continue_training(const ContinueOptions& options);

  // What train() would do with these options: which engine, callbacks and metrics. Throws as
  // train() does before it starts. Calls the overrides of get_model() and the others, and sets the
  // seed of LibTorch's generators for them.
  Plan plan(const TrainOptions& options);

  // Returns the loader's metrics, computed without gradients and in evaluation mode.
  Metrics evaluate_loader(EvaluateOptions options);

  // The results of predict_batch for each batch, computed lazily, without gradients and in
  // evaluation mode. They are on the CPU:
  //
  //   for (ls::Batch& out : runner.predict_loader({.loader = {valid, {.batch_size = 100}}})) …
  //
  // The runner must outlive the returned object. Only for an engine of one process.
  Predictions predict_loader(PredictOptions options) &;

  // The same for any engine: calls `take` with the outputs of each batch, in the order of the
  // loader and with the same numbers for any number of workers. `take` may
  // return false to end the prediction early; if it returns nothing, it gets all batches:
  //
  //   runner.predict_loader({.loader = valid, .engine = engine}, [&](ls::Batch& out) { … });
  //
  // Several workers compute while `take` works, and a few batches are in memory at a time. `take`
  // is called in this process. If a launcher started the processes, all must call this function,
  // and `take` is called on rank 0 only. Throws WorkerError if a worker fails.
  template <typename Take>
  requires std::invocable<Take&, Batch&>
  void predict_loader(PredictOptions options, Take take) {
    predict_each(std::move(options), [&take](Batch& outputs) {
      if constexpr (std::is_void_v<std::invoke_result_t<Take&, Batch&>>) {
        take(outputs);
        return true;
      } else {
        return static_cast<bool>(take(outputs));
      }
    });
  }

  // Shows a finished run to callbacks and loggers (runner/replay.h). Nothing of the runner is
  // used, not even its handlers. Throws ConfigError for a callback that makes sense in training
  // only. A callback may request the end. If a launcher started several processes, call it on one.
  static void replay(const ReplayOptions& options);

  // The metrics that handle_batch and the handlers below add, if they are known: a wrong
  // valid_metric is then refused before the first batch. Nothing: it may add any metric.
  virtual std::optional<std::vector<std::string>> metric_names() const { return std::nullopt; }

  // The options of your class on which all ranks of a run must agree, as text (base/option_text.h).
  // The ranks compare it, and the class itself, before the first batch.
  virtual std::string agreed_options() const { return ""; }

 protected:
  // Computes forward and loss of state.batch. Pass the loss to state.set_loss, which also says what
  // it is a mean over; a loss that is put into the batch under loss_key() instead is a mean over
  // its samples. Put other numbers to be averaged into state.batch_metrics.
  virtual void handle_batch(State& state) = 0;

  // What predict_loader yields for a batch.
  virtual Batch predict_batch(const Model& model, const Batch& batch);

  // The parts of train(). By default they come from its options, which `options()` returns.
  // evaluate_loader and predict_loader take theirs from their own options.
  virtual std::shared_ptr<Engine> get_engine();
  virtual std::optional<std::uint64_t> get_seed();
  virtual HParams get_hparams();
  // By default the loaders of the options, and one for each data set of get_datasets(). A data set
  // replaces that of the loader of its name. A sampler replaces the loader's order.
  virtual data::Loaders get_loaders();
  virtual Datasets get_datasets() { return {}; }
  virtual Samplers get_samplers() { return {}; }
  // The options of the loader that is made for a data set. By default those of the loader of that
  // name in the options; if there is none, batches of 32, shuffled if the loader trains.
  virtual data::LoaderOptions get_loader_options(const std::string& name);
  virtual Model get_model();
  virtual Named<Model> get_models();
  virtual Criterion get_criterion();
  virtual Named<Criterion> get_criterions();
  virtual optim::OptimizerSpec get_optimizer();
  virtual Named<optim::OptimizerSpec> get_optimizers();
  virtual optim::SchedulerSpec get_scheduler();
  virtual Named<optim::SchedulerSpec> get_schedulers();
  virtual Phases get_phases();
  virtual Callbacks get_callbacks();
  virtual std::vector<std::shared_ptr<Logger>> get_loggers();

  // Handlers: hooks of the runner itself, in train() and evaluate_loader(), on every rank. Those of
  // the first group are called before all callbacks, those of the second after all callbacks except
  // those of Order::kExternalExtra: what they change is in the checkpoint of that moment.
  virtual void on_run_start(State&) {}
  virtual void on_epoch_start(State&) {}
  virtual void on_loader_start(State&) {}
  virtual void on_batch_start(State&) {}
  virtual void on_outputs(State&) {}
  virtual void on_forward(State&) {}
  virtual void on_backward(State&) { default_backward_ = true; }  // needs overrides_on_backward()

  virtual void on_batch_end(State&) {}
  virtual void on_step(State&) {}
  virtual void on_loader_end(State&) {}
  virtual void on_epoch_end(State&) {}
  virtual void on_checkpoint(State&) {}  // on rank 0 only; the file is there
  virtual void on_run_end(State&) {}
  virtual void on_exception(State&) {}

  // Whether on_backward is overridden. Return true then; the run is slower if all gradients have to
  // be there for it. An override without it is refused in the first batch.
  virtual bool overrides_on_backward() const { return false; }

  virtual std::string loss_key() const { return "loss"; }

  // The keys of the batch, if handle_batch only sends the input through the model and the output
  // through the criterion. The dry run then tries both with a few samples. Nothing: it may do
  // anything, and is not tried.
  virtual std::optional<SupervisedKeys> batch_keys() const { return std::nullopt; }

  // The options of the running train(). Throws Error outside of it.
  const TrainOptions& options() const;

  // The name of the stage that is trained, for overrides of the parts above; "" outside of
  // train_stages().
  const std::string& stage() const { return stage_.name; }

 private:
  friend class RunnerHandlers;

  TrainResult run(TrainOptions options, const std::shared_ptr<const KeptRun>& from);
  std::shared_ptr<Engine> engine_of(TrainOptions options);
  void check_engines(const std::vector<Stage>& stages);
  Plan plan_of(TrainOptions options, const std::shared_ptr<Engine>& engine);
  RunnerParts parts();
  Batch predict_on(Engine& engine, const Model& model, Precision precision, const Batch& batch);
  void predict_each(PredictOptions options, const std::function<bool(Batch&)>& take);
  template <typename Options>
  void use_last_models(Options& options) const;
  // The model of a prediction, with the weights that the options name. Fills in the precision.
  Model predicting_model(PredictOptions& options) const;

  struct CurrentStage {
    std::string name;
    bool keeps_model = false;  // the networks of the stage before go on; get_model() is not called
  };

  const TrainOptions* options_ = nullptr;
  CurrentStage stage_;
  // What the last training had, for the next stage, evaluations and predictions.
  struct Last {
    Model model;          // one, or all networks together
    Named<Model> models;  // if there are several
    Criterion criterion;
    Named<Criterion> criterions;
    Phases phases;
    Precision precision;
  };
  Last last_;
  // The last run that finished: its options, its stage, and what is needed to go on from it.
  std::optional<TrainOptions> last_options_;
  std::string last_stage_;
  std::shared_ptr<const KeptRun> last_run_;
  bool default_backward_ = false;  // the last on_backward() was that of this class
};

}  // namespace lockstep
