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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/runner/predictions.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"
#include "lockstep/train/supervised_keys.h"

namespace lockstep {

struct Plan;
struct RunnerParts;

class Runner {
 public:
  virtual ~Runner() = default;

  // Trains, and returns once, with the trained model. Ctrl-C and SIGTERM end the training after the
  // current batch, with a checkpoint if there is a logdir; then the signal has its usual effect.
  TrainResult train(TrainOptions options);

  // What train() would do with these options: which engine, callbacks and metrics. Throws as
  // train() does before it starts. Calls the overrides of get_model() and the others, and sets the
  // seed of LibTorch's generators for them.
  Plan plan(const TrainOptions& options);

  // Returns the loader's metrics, computed without gradients and in evaluation mode.
  Metrics evaluate_loader(EvaluateOptions options);

  // The results of predict_batch for each batch, computed lazily, without gradients and in
  // evaluation mode:
  //
  //   for (ls::Batch& out : runner.predict_loader({.loader = {valid, {.batch_size = 100}}})) …
  //
  // The runner must outlive the returned object. Only for an engine of one process.
  Predictions predict_loader(PredictOptions options) &;

  // The same for any engine: calls `take` with the outputs of each batch, in the order of the
  // loader and with the same numbers for any number of workers. Outputs are on the CPU. `take` may
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

  // The metrics that handle_batch puts into state.batch_metrics, if they are known: a wrong
  // valid_metric is then refused before the first batch. Nothing: it may add any metric.
  // SupervisedRunner's handle_batch adds none; if yours does, override this, too.
  virtual std::optional<std::vector<std::string>> metric_names() const { return std::nullopt; }

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
  virtual data::Loaders get_loaders();
  virtual Model get_model();
  virtual Criterion get_criterion();
  virtual optim::OptimizerSpec get_optimizer();
  virtual optim::SchedulerSpec get_scheduler();
  virtual Callbacks get_callbacks();

  virtual std::string loss_key() const { return "loss"; }

  // The keys of the batch, if handle_batch only sends the input through the model and the output
  // through the criterion. The dry run then tries both with a few samples. Nothing: it may do
  // anything, and is not tried.
  virtual std::optional<SupervisedKeys> batch_keys() const { return std::nullopt; }

  // The options of the running train(). Throws Error outside of it.
  const TrainOptions& options() const;

 private:
  std::shared_ptr<Engine> engine_of(TrainOptions options);
  Plan plan_of(TrainOptions options, const std::shared_ptr<Engine>& engine);
  RunnerParts parts();
  void predict_each(PredictOptions options, const std::function<bool(Batch&)>& take);
  Model model_or_last(const Model& model, const std::optional<std::string>& resume) const;

  const TrainOptions* options_ = nullptr;
  Model last_model_;
  Criterion last_criterion_;
};

}  // namespace lockstep
