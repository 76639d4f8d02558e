#include "lockstep/runner/runner.h"

#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/callback/builtin.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/engine/engine.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/train/loop.h"
#include "lockstep/train/plan.h"

namespace lockstep {
namespace {

// Sets a pointer for the duration of a call.
class Borrowed {
 public:
  Borrowed(const TrainOptions*& slot, const TrainOptions& options) : slot_(slot) {
    if (slot_ != nullptr) throw Error("train() was called inside of train() of the same runner");
    slot_ = &options;
  }
  ~Borrowed() { slot_ = nullptr; }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  const TrainOptions*& slot_;
};

// At the end of a run, however it ended, signals have their usual effect again.
struct Released {
  ~Released() { process::InterruptGuard::release(); }
};

std::shared_ptr<Engine> or_default(std::shared_ptr<Engine> engine) {
  return engine != nullptr ? std::move(engine) : std::make_shared<DeviceEngine>();
}

}  // namespace

TrainResult Runner::train(TrainOptions options) {
  const Borrowed borrowed(options_, options);
  const auto engine = engine_of(options);
  Plan resolved;
  std::optional<TrainResult> result;
  std::optional<Interrupted> interrupt;
  const Released released;
  engine->run({.prepare =
                   [&] {
                     resolved = plan_of(options, engine);
                     last_model_ = resolved.model;
                     last_criterion_ = resolved.criterion;
                   },
               .work =
                   [&](comm::Communicator& communicator) {
                     try {
                       result = Loop(resolved, communicator).run();
                     } catch (const Interrupted& caught) {
                       interrupt = caught;  // all workers were interrupted; none has failed
                     }
                   }});
  if (interrupt) {
    // Everything is saved and closed. Now the signal may have its default effect.
    process::InterruptGuard::release();
    std::raise(interrupt->signal_number);
    throw *interrupt;
  }
  return std::move(*result);
}

Plan Runner::plan(const TrainOptions& options) {
  const Borrowed borrowed(options_, options);
  return plan_of(options, engine_of(options));
}

std::shared_ptr<Engine> Runner::engine_of(TrainOptions options) {
  options.engine = get_engine();
  return resolve_engine(options);
}

Plan Runner::plan_of(TrainOptions options, const std::shared_ptr<Engine>& engine) {
  // Models that the overrides below build draw their random weights from the run's seed.
  torch::manual_seed(options.seed.value_or(42));
  options.loaders = get_loaders();
  options.model = get_model();
  options.criterion = get_criterion();
  options.optimizer = get_optimizer();
  options.scheduler = get_scheduler();
  options.callbacks = get_callbacks();
  options.callbacks = with_builtin_callbacks(options);
  return resolve(options, engine, parts());
}

RunnerParts Runner::parts() {
  return {.handle_batch = [this](State& state) { handle_batch(state); },
          .loss_key = loss_key(),
          .metrics = metric_names(),
          .keys = batch_keys()};
}

Metrics Runner::evaluate_loader(EvaluateOptions options) {
  if (options.verbose) options.callbacks.add(progress_callback());
  options.model = model_or_last(options.model, options.resume);
  if (!options.criterion) options.criterion = last_criterion_;
  const Plan plan = resolve(options, parts());
  TrainResult result;
  plan.engine->run(
      {.prepare = [] {},
       .work = [&](comm::Communicator& communicator) { result = Loop(plan, communicator).run(); }});
  return result.last_metrics.at(plan.loaders.begin()->first);
}

Predictions Runner::predict_loader(PredictOptions options) & {
  const Model model = model_or_last(options.model, options.resume);
  const auto engine = or_default(options.engine);
  if (engine->workers() > 1) {
    throw ConfigError(
        "predict_loader: expected an engine of one process, got one of {} workers; pass a function "
        "that takes the outputs: predict_loader(options, [](ls::Batch& outputs) {{ … }})",
        engine->workers());
  }
  engine->start();
  const torch::Device device = engine->device();
  model.to(device);
  return Predictions(model, options.loader.stream({.seed = options.seed}),
                     [this, model, device](const Batch& batch) {
                       return predict_batch(model, device.is_cpu() ? batch : batch.to(device));
                     });
}

void Runner::predict_each(PredictOptions options, const std::function<bool(Batch&)>& take) {
  const auto engine = or_default(options.engine);
  Model model;
  engine->run(
      {.prepare = [&] { model = model_or_last(options.model, options.resume); },
       .work =
           [&](comm::Communicator& communicator) {
             const torch::Device device = engine->device();
             model.to(device);
             const auto predict = [&](const Batch& batch) {
               // For each batch, because `take` may have trained the model.
               model.train(false);
               return predict_batch(model, device.is_cpu() ? batch : batch.to(device));
             };
             predict_together(
                 {.loader = options.loader, .seed = options.seed, .predict = predict, .take = take},
                 communicator);
           }});
}

Model Runner::model_or_last(const Model& model, const std::optional<std::string>& resume) const {
  const Model chosen = model ? model : last_model_;
  if (!chosen) {
    throw ConfigError(
        "model: expected one, got none; pass .model, or train with this runner first");
  }
  if (resume) chosen.load_state(checkpoint::load_weights(*resume));
  return chosen;
}

Batch Runner::predict_batch(const Model& model, const Batch& batch) {
  return {{"logits", model(batch["features"])}};
}

std::shared_ptr<Engine> Runner::get_engine() {
  return options().engine;
}

data::Loaders Runner::get_loaders() {
  return options().loaders;
}

Model Runner::get_model() {
  return options().model;
}

Criterion Runner::get_criterion() {
  return options().criterion;
}

optim::OptimizerSpec Runner::get_optimizer() {
  return options().optimizer;
}

optim::SchedulerSpec Runner::get_scheduler() {
  return options().scheduler;
}

Callbacks Runner::get_callbacks() {
  return options().callbacks;
}

const TrainOptions& Runner::options() const {
  if (options_ == nullptr) throw Error("options() of a runner can be called only inside train()");
  return *options_;
}

}  // namespace lockstep
