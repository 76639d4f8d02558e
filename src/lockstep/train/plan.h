// A run as it will take place. TrainOptions are what the user said; a Plan is what follows from
// them: which engine, which callbacks in which order, how the best epoch is chosen. resolve() is
// the only place that decides this. The loop, the dry run and configs use the result.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/named.h"
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/kept_run.h"
#include "lockstep/train/options.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/run_length.h"
#include "lockstep/train/run_memory.h"
#include "lockstep/train/state.h"
#include "lockstep/train/step_settings.h"
#include "lockstep/train/supervised_keys.h"

namespace lockstep {

// The part of a run that an error is about.
struct PlanPart {
  std::string path;   // as in a config: "engine", "loaders/valid"
  std::string title;  // what a message calls it: "loader 'valid'"
};

PlanPart loader_part(const std::string& name);
PlanPart named_part(const std::string& name);  // "engine", "criterion", …

// A mistake in one part of a run. A program shows what(); a config shows the reason at the place of
// the part. A mistake in an option itself is a plain ConfigError, whose message begins with the
// name of the option.
class PlanError : public ConfigError {
 public:
  PlanError(const PlanPart& part, const std::string& reason);

  const std::string& part() const { return part_; }      // its path
  const std::string& reason() const { return reason_; }  // what() without the title of the part

 private:
  std::string part_;
  std::string reason_;
};

// What a runner adds to the options.
struct RunnerParts {
  std::function<void(State&)> handle_batch = {};
  std::string loss_key = "loss";  // of the batch, where handle_batch puts the loss
  // The metrics that handle_batch adds besides the loss. Nothing: it may add any metric.
  std::optional<std::vector<std::string>> metrics = std::nullopt;
  // The keys of the batch, if handle_batch only sends the input through the model and the output
  // through the criterion. Nothing: it may do anything.
  std::optional<SupervisedKeys> keys = std::nullopt;
  std::string type = {};     // its class
  std::string options = {};  // on which all ranks must agree, as text
};

// An optimizer of a run, and the networks that it trains.
struct PlannedOptimizer {
  std::string name = "optimizer";
  optim::OptimizerSpec spec = {};
  optim::SchedulerSpec scheduler = {};     // may be empty
  std::vector<std::string> networks = {};  // their names
};

struct Plan {
  // As given, except num_epochs, which also follows from num_steps. The loop reads what the fields
  // below do not decide.
  TrainOptions options;

  Model model;                               // all networks together
  Named<Model> models;                       // its networks
  Criterion criterion;                       // empty if there is none, or if there are several
  Named<Criterion> criterions;               // may be empty
  std::vector<PlannedOptimizer> optimizers;  // empty: nothing is trained
  std::vector<Phase> phases;  // at least one, whose name is empty if it is the only one
  data::Loaders loaders;
  std::vector<CallbackPtr> callbacks;  // built-in ones included, in their order
  std::shared_ptr<Engine> engine;
  std::string loss_key = "loss";
  std::function<void(State&)> handle_batch;
  std::optional<SupervisedKeys> keys;  // as in RunnerParts
  std::string runner_type = {};        // as in RunnerParts
  std::string runner_options = {};

  std::optional<std::vector<std::string>> known_metrics;  // of every loader, if they are known
  Selection selection;                                    // of the best epoch
  StepSettings step;
  Precision precision;                             // of forward pass and loss
  std::optional<optim::GradScalerOptions> scaler;  // none: the loss is not scaled
  double lr_factor = 1.0;  // by which learning rates are multiplied (lr_base_batch_size)
  RunLength length;
  std::shared_ptr<const KeptRun> goes_on_from;  // null: a new run, or one from a checkpoint
  std::shared_ptr<RunMemory> memory;            // of a run that may be restarted; else null
};

// The engine that the options ask for: the given one, workers for `ddp`, or this process. Throws
// ConfigError for options that make no sense and for options that contradict each other.
//
// It is a step of its own, because the engine decides where the rest is resolved: once, before
// workers are forked, or in every process that a launcher started.
std::shared_ptr<Engine> resolve_engine(const TrainOptions& options);

// Decides everything else. `options` have the model, the data and the other parts that the runner's
// overrides returned, and all callbacks, those that options such as `verbose` request included.
// Throws ConfigError, which is a PlanError where it is about one part, if a part is missing or
// parts do not fit together. It reads no data.
Plan resolve(const TrainOptions& options, std::shared_ptr<Engine> engine, RunnerParts runner);

// The plan of evaluate_loader: one epoch of one loader, without an optimizer.
Plan resolve(const EvaluateOptions& options, RunnerParts runner);

// The parameters that an optimizer trains, under the names that they have in plan.model.
NamedTensors parameters_of(const Plan& plan, const PlannedOptimizer& optimizer);
// Makes the optimizer, with the learning rate of the plan.
std::unique_ptr<optim::Optimizer> make_optimizer(const Plan& plan,
                                                 const PlannedOptimizer& optimizer,
                                                 optim::FlatParameters& parameters);
// The names of the networks without an optimizer. None when evaluating.
std::vector<std::string> untrained_networks(const Plan& plan);
// The phase that steps an optimizer.
const Phase& phase_of(const Plan& plan, const PlannedOptimizer& optimizer);
// The length of the run for the scheduler of an optimizer: the number of updates of that optimizer,
// or slightly more if its phase does not take place in every batch.
optim::ScheduleContext schedule_of(const Plan& plan, const PlannedOptimizer& optimizer);
// The part of an optimizer, or of its scheduler (`kind`): "optimizer", or "optimizers/generator" if
// it was given by name.
PlanPart optimizer_part(const Plan& plan, const PlannedOptimizer& optimizer,
                        const std::string& kind = "optimizer");

// What callbacks see of a plan before the run starts: a State without optimizer, scheduler and
// communicator.
State state_of(const Plan& plan);

}  // namespace lockstep
