// A runner knows what to do with one batch and where the parts of a run come from; train() does the
// rest. Derive from it (or from SupervisedRunner) and override what is yours:
//
//   class Autoencoder : public ls::Runner {
//     void handle_batch(ls::State& s) override {
//       auto output = s.model(s.batch["features"]);
//       s.set_loss(torch::mse_loss(output, s.batch["features"]));
//     }
//   };
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/runner/predictions.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"
#include "lockstep/train/state.h"

namespace lockstep {

struct Plan;

class Runner {
 public:
  virtual ~Runner() = default;

  // Trains, and returns once, with the trained model. Ctrl-C and SIGTERM end it after the batch at
  // work, with a checkpoint where there is a logdir; the signal then takes its usual course.
  TrainResult train(TrainOptions options);

  // The loader's metrics, without gradients and in evaluation mode.
  Metrics evaluate_loader(EvaluateOptions options);

  // What predict_batch makes of each batch, lazily, without gradients and in evaluation mode:
  //
  //   for (ls::Batch& out : runner.predict_loader({.loader = {valid, {.batch_size = 100}}})) …
  //
  // The runner outlives what it returns.
  Predictions predict_loader(PredictOptions options) &;

  // The numbers that handle_batch puts into state.batch_metrics, where it knows them: a wrong
  // valid_metric is then refused before the first batch. Nothing: it may add any.
  // SupervisedRunner's adds none; where your handle_batch does, override this, too.
  virtual std::optional<std::vector<std::string>> metric_names() const { return std::nullopt; }

 protected:
  // Forward and loss of state.batch. Hand the loss over by state.set_loss, which says what it is a
  // mean over; one that is put into the batch under loss_key() instead is a mean over its samples.
  // Other numbers worth an average go into state.batch_metrics.
  virtual void handle_batch(State& state) = 0;

  // What predict_loader yields for a batch.
  virtual Batch predict_batch(const Model& model, const Batch& batch);

  // Where the parts of train() come from. By default from its options, which `options()` are.
  // evaluate_loader and predict_loader take theirs from their own options.
  virtual std::shared_ptr<Engine> get_engine();
  virtual data::Loaders get_loaders();
  virtual Model get_model();
  virtual Criterion get_criterion();
  virtual optim::OptimizerSpec get_optimizer();
  virtual optim::SchedulerSpec get_scheduler();
  virtual Callbacks get_callbacks();

  virtual std::string loss_key() const { return "loss"; }

  // The options of the train() at work. Throws Error outside of it.
  const TrainOptions& options() const;

 private:
  Plan plan_of(const TrainOptions& options, const std::shared_ptr<Engine>& engine);
  Metrics evaluate(const EvaluateOptions& options, const Callbacks& callbacks, const Model& model,
                   const std::shared_ptr<Engine>& engine, comm::Communicator& communicator);
  Model model_or_last(const Model& model, const std::optional<std::string>& resume) const;

  const TrainOptions* options_ = nullptr;
  Model last_model_;
  Criterion last_criterion_;
};

}  // namespace lockstep
