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
#include "lockstep/data/loaders.h"
#include "lockstep/engine/engine.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/options.h"
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
};

struct Plan {
  TrainOptions options;  // as given; the loop reads what the fields below do not decide

  Model model;
  Criterion criterion;             // may be empty
  optim::OptimizerSpec optimizer;  // empty: nothing is trained
  optim::SchedulerSpec scheduler;  // may be empty
  data::Loaders loaders;
  std::vector<CallbackPtr> callbacks;  // built-in ones included, in their order
  std::shared_ptr<Engine> engine;
  std::string loss_key = "loss";
  std::function<void(State&)> handle_batch;
  std::optional<SupervisedKeys> keys;  // as in RunnerParts

  std::optional<std::vector<std::string>> known_metrics;  // of every loader, if they are known
  Selection selection;                                    // of the best epoch
  StepSettings step;
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

// What callbacks see of a plan before the run starts: a State without optimizer, scheduler and
// communicator.
State state_of(const Plan& plan);

}  // namespace lockstep
