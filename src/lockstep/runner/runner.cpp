#include "lockstep/runner/runner.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/callback/builtin.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/run_series.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/interrupt.h"
#include "lockstep/process/memory_file.h"
#include "lockstep/runner/handlers.h"
#include "lockstep/train/failure.h"
#include "lockstep/train/first_weights.h"
#include "lockstep/train/loop.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/run_memory.h"
#include "lockstep/train/stored_run.h"

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

// Gives a variable its first value again at the end of a block.
template <typename T>
struct Reset {
  T& slot;
  ~Reset() { slot = T(); }
};

// Only a launcher can replace the processes that it started.
void warn_of_other_launcher(const TrainOptions& options) {
  const auto place = process::find_place(process::current_environment());
  if (options.max_restarts == 0 || !place || place->topology.rank != 0) return;
  warn(fmt::format(
      "max_restarts: {} has no effect, because the launcher that started the ranks does "
      "not replace them; use `lockstep launch --max-restarts {}`",
      options.max_restarts, options.max_restarts));
}

// What outlives an attempt. Null if the run is not restarted.
std::shared_ptr<RunMemory> memory_for(const TrainOptions& options, const Engine& engine,
                                      const std::string& stage) {
  if (engine.restarts() == Engine::Restarts::kByRun && options.max_restarts > 0) {
    return std::make_shared<RunMemory>(options.max_restarts);
  }
  if (engine.restarts() != Engine::Restarts::kByLauncher) return nullptr;
  auto file = process::MemoryFile::inherited();
  if (file == nullptr) {
    warn_of_other_launcher(options);
    return nullptr;
  }
  const int run = next_stored_run();
  if (run >= process::MemoryFile::kMostRuns) return nullptr;
  const process::Environment environment = process::current_environment();
  const auto restarts = environment.find("TORCHELASTIC_MAX_RESTARTS");
  return std::make_shared<RunMemory>(
      StoredRun(std::move(file), run),
      RunMemory::Launched{
          .max_restarts = restarts != environment.end() ? std::atoi(restarts->second.c_str()) : 0,
          .is_elastic = environment.contains(process::kElasticVariable),
          .place = process::find_place(environment).value().topology,
          .identity = fmt::format("{} in {}", stage, options.logdir.value_or("").string())});
}

// Tells the launcher that an option is wrong: another attempt would fail, too. The loop itself
// notes what fails while it runs; this is for the rest of a run, from the engine to the loop's
// start.
void note_wrong_option(const ConfigError& error) try {
  const auto file = process::MemoryFile::inherited();
  const auto place = process::find_place(process::current_environment());
  if (file == nullptr || !place) return;
  const int attempt = file->attempt();
  const int rank = place->topology.rank;
  const bool is_noted = std::ranges::any_of(file->failures(), [&](const auto& note) {
    return note.attempt == attempt && note.rank == rank;
  });
  if (is_noted) return;
  file->note_failure({.attempt = attempt,
                      .rank = rank,
                      .kind = process::FailureKind::kConfig,
                      .reason = error.what()});
} catch (const std::exception& cannot_note) {
  warn(fmt::format("the launcher does not learn of a wrong option: {}", message_of(cannot_note)));
}

// For Engine::Job. Empty if the run is not restarted.
std::function<bool(const Engine::AttemptFailure&)> try_again_with(
    const std::shared_ptr<RunMemory>& memory) {
  if (memory == nullptr) return {};
  return [memory](const Engine::AttemptFailure& failure) { return memory->try_again(failure); };
}

std::shared_ptr<Engine> or_default(std::shared_ptr<Engine> engine) {
  return engine != nullptr ? std::move(engine) : std::make_shared<DeviceEngine>();
}

// Loads weights into the model. The precision is taken, too, if the user has not said one and the
// file is a checkpoint that knows it.
void load_file(const Weights& weights, const Model& model, std::optional<Precision>& precision) {
  const std::filesystem::path& path = weights.path();
  FirstWeights first;
  if (path.extension() == ".safetensors") {
    first = first_weights(model, weights);
  } else {
    const checkpoint::Content content = checkpoint::read(path);
    first = first_weights(model, weights, checkpoint::weights_in(content, path));
    if (!precision && content.is_ours) precision = saved_precision(content.state);
  }
  model.load_state(first.state);
  if (!first.kept.empty()) warn(fmt::format("weights {}: {}", path.string(), first.rest()));
}

// For EvaluateOptions and PredictOptions.
template <typename Options>
void load_weights_of(Options& options, const Model& model) {
  if (options.resume && options.weights) {
    throw ConfigError("weights: expected resume or weights, got both: '{}' and '{}'",
                      *options.resume, options.weights.path().string());
  }
  if (options.resume) load_file(*options.resume, model, options.precision);
  if (options.weights) load_file(options.weights, model, options.precision);
}

// Of an evaluation or prediction.
void check_model(bool is_there) {
  if (is_there) return;
  throw ConfigError("model: expected one, got none; pass .model, or train with this runner first");
}

}  // namespace

TrainResult Runner::train(TrainOptions options) {
  if (options_ == nullptr) {  // else run() refuses
    last_options_.reset();
    last_run_.reset();
  }
  return run(std::move(options), nullptr);
}

TrainResult Runner::continue_training(const ContinueOptions& options) {
  if (!last_options_) {
    throw ConfigError("continue_training: this runner has no finished train() to go on from");
  }
  if (!last_run_) {
    const auto& logdir = last_options_->logdir;
    throw ConfigError(
        "continue_training: the last train() kept nothing to go on from; set its option keep_run "
        "to true{}",
        logdir
            ? fmt::format(", or call train() again with .logdir = \"{}\", .resume = \"last\" and "
                          "a larger num_epochs or num_steps: it goes on from the checkpoint",
                          logdir->string())
            : "");
  }
  if (!last_run_->unavailable.empty()) {
    throw ConfigError("continue_training: the last run cannot go on: {}", last_run_->unavailable);
  }
  if (options.num_epochs.has_value() == options.num_steps.has_value()) {
    throw ConfigError("continue_training: expected num_epochs or num_steps, got {}",
                      options.num_epochs ? "both" : "none");
  }
  TrainOptions longer = *last_options_;
  longer.num_epochs = options.num_epochs.value_or(TrainOptions().num_epochs);
  longer.num_steps = options.num_steps;
  longer.resume.reset();
  longer.weights = {};
  longer.weights_skip.clear();
  longer.network_weights = {};
  longer.restore = {};
  longer.dry_run = false;  // it is done
  const Reset<CurrentStage> reset{stage_};
  stage_ = {.name = last_stage_, .keeps_model = true};
  return run(std::move(longer), last_run_);
}

TrainResult Runner::run(TrainOptions options, const std::shared_ptr<const KeptRun>& from) try {
  const Borrowed borrowed(options_, options);
  const auto engine = engine_of(options);
  Plan resolved;
  std::optional<TrainResult> result;
  std::shared_ptr<const KeptRun> kept;
  std::optional<Interrupted> interrupt;
  const Released released;
  // Between two attempts a signal waits for the next one, in which the run can be saved. At the end
  // a signal waits until the run's folder is closed, too.
  std::optional<process::InterruptGuard> interrupts;
  const std::shared_ptr<RunMemory> memory = memory_for(options, *engine, stage_.name);
  try {
    engine->run({.prepare =
                     [&] {
                       resolved = plan_of(options, engine);
                       resolved.goes_on_from = from;
                       resolved.memory = memory;
                       last_ = {.model = resolved.model,
                                .models = resolved.options.models,
                                .criterion = resolved.options.criterion,
                                .criterions = resolved.options.criterions,
                                .phases = resolved.options.phases,
                                .precision = resolved.precision};
                     },
                 .work =
                     [&](comm::Communicator& communicator) {
                       if (!interrupts) interrupts.emplace();
                       try {
                         Loop loop(resolved, communicator);
                         result = loop.run();
                         kept = loop.kept_run();
                       } catch (const Interrupted& caught) {
                         interrupt = caught;  // all workers were interrupted; none has failed
                       }
                     },
                 .try_again = try_again_with(memory),
                 .min_workers = options.min_workers});
  } catch (...) {
    if (memory == nullptr) throw;
    end_lost_run(resolved, *memory);
    memory->close();
    rethrow_with(memory->is_launched() ? "" : memory->describe_refusal());
  }
  if (memory) memory->close();
  if (interrupt) {
    // Everything is saved and closed. Now the signal may have its default effect.
    process::InterruptGuard::release();
    std::raise(interrupt->signal_number);
    throw *interrupt;
  }
  last_run_ = kept;
  last_options_ = options;
  last_stage_ = stage_.name;
  return std::move(*result);
} catch (const ConfigError& error) {
  note_wrong_option(error);
  throw;
}

TrainResult Runner::train_stages(std::vector<Stage> stages, const StagesOptions& options) {
  check_stages(stages);
  share_models(stages);
  if (options.resume) {
    const TrainOptions first = options_of(stages.front());
    const Borrowed borrowed(options_, first);
    resume_stages(stages, *options.resume, engine_of(first).get());
  }
  check_engines(stages);
  std::optional<TrainResult> result;
  for (const Stage& stage : stages) {
    const Reset<CurrentStage> reset{stage_};
    const bool has_model = stage.options.model || !stage.options.models.empty();
    stage_ = {.name = stage.name, .keeps_model = result && !has_model};
    result = train(options_of(stage));
  }
  return std::move(*result);
}

// Throws ConfigError if a stage could not fork its workers because of a stage before it.
void Runner::check_engines(const std::vector<Stage>& stages) {
  if (stages.size() < 2 || gpu_count() == 0) return;
  std::vector<PlannedRun> runs;
  for (const Stage& stage : stages) {
    const TrainOptions options = options_of(stage);
    const Borrowed borrowed(options_, options);
    const Reset<CurrentStage> reset{stage_};
    stage_.name = stage.name;
    runs.push_back(planned_run(*engine_of(options)));
  }
  const auto refused = refused_run(runs);
  if (!refused) return;
  throw ConfigError(
      "stage '{}': expected one worker, or workers that a launcher starts: an earlier stage starts "
      "CUDA in this process, and then no workers can be forked that use GPUs. Start the program as "
      "one process per GPU: lockstep launch --nproc-per-node gpu -- PROGRAM, or torchrun, mpirun, "
      "srun",
      stages[*refused].name);
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
  options.seed = get_seed();
  // Models that the overrides below build draw their random weights from the run's seed.
  manual_seed(options.seed.value_or(42));
  options.hparams = get_hparams();
  options.loaders = get_loaders();
  if (stage_.keeps_model) {
    use_last_models(options);
  } else {
    options.model = get_model();
    options.models = get_models();
  }
  options.criterion = get_criterion();
  options.criterions = get_criterions();
  options.optimizer = get_optimizer();
  options.optimizers = get_optimizers();
  options.scheduler = get_scheduler();
  options.schedulers = get_schedulers();
  options.phases = get_phases();
  options.loggers = get_loggers();
  options.callbacks = get_callbacks();
  options.callbacks = with_builtin_callbacks(options);
  add_handlers(options.callbacks, *this);
  return resolve(options, engine, parts());
}

// A single network must stay one: its weights have other names inside of a combined model.
template <typename Options>
void Runner::use_last_models(Options& options) const {
  options.models = last_.models;
  options.model = last_.models.empty() ? last_.model : Model();
}

RunnerParts Runner::parts() {
  return {.handle_batch = [this](State& state) { handle_batch(state); },
          .loss_key = loss_key(),
          .metrics = metric_names(),
          .keys = batch_keys(),
          .type = c10::demangle(typeid(*this).name()),
          .options = agreed_options()};
}

Metrics Runner::evaluate_loader(EvaluateOptions options) {
  if (options.verbose) options.callbacks.add(progress_callback());
  add_handlers(options.callbacks, *this);
  if (!options.model && options.models.empty()) use_last_models(options);
  if (!options.criterion && options.criterions.empty()) {
    options.criterion = last_.criterion;
    options.criterions = last_.criterions;
  }
  if (options.phases.empty()) options.phases = last_.phases;
  check_model(options.model || !options.models.empty());
  Plan plan = resolve(options, parts());
  load_weights_of(options, plan.model);
  plan.precision = options.precision.value_or(last_.precision);
  check_precision(plan.precision, plan.engine->device());
  TrainResult result;
  plan.engine->run(
      {.prepare = [] {},
       .work = [&](comm::Communicator& communicator) { result = Loop(plan, communicator).run(); }});
  return result.last_metrics.at(plan.loaders.begin()->first);
}

Predictions Runner::predict_loader(PredictOptions options) & {
  const Model model = predicting_model(options);
  const auto engine = or_default(options.engine);
  if (engine->workers() > 1) {
    throw ConfigError(
        "predict_loader: expected an engine of one process, got one of {} workers; pass a function "
        "that takes the outputs: predict_loader(options, [](ls::Batch& outputs) {{ … }})",
        engine->workers());
  }
  const Precision precision = *options.precision;
  check_precision(precision, engine->device());
  warn_of_slow_precision(precision, engine->device());
  engine->start();
  model.to(engine->device());
  return Predictions(model, options.loader.stream({.seed = options.seed}),
                     [this, model, engine, precision](const Batch& batch) {
                       return predict_on(*engine, model, precision, batch);
                     });
}

Model Runner::predicting_model(PredictOptions& options) const {
  const Model model = options.model ? options.model : last_.model;
  check_model(static_cast<bool>(model));
  load_weights_of(options, model);
  if (!options.precision) options.precision = last_.precision;
  return model;
}

Batch Runner::predict_on(Engine& engine, const Model& model, Precision precision,
                         const Batch& batch) {
  const torch::Device device = engine.device();
  Batch outputs;
  engine.forward([&] {
    const AutocastScope autocast(precision, device);
    outputs = predict_batch(model, device.is_cpu() ? batch : batch.to(device));
  });
  if (precision.is_mixed()) widen(outputs);
  return device.is_cpu() ? outputs : outputs.to(torch::kCPU);
}

void Runner::predict_each(PredictOptions options, const std::function<bool(Batch&)>& take) {
  const auto engine = or_default(options.engine);
  Model model;
  engine->run(
      {.prepare =
           [&] {
             model = predicting_model(options);
             check_precision(*options.precision, engine->device());
           },
       .work =
           [&](comm::Communicator& communicator) {
             if (communicator.is_primary()) {
               warn_of_slow_precision(*options.precision, engine->device());
             }
             model.to(engine->device());
             const auto predict = [&](const Batch& batch) {
               // For each batch, because `take` may have trained the model.
               model.train(false);
               return predict_on(*engine, model, *options.precision, batch);
             };
             predict_together(
                 {.loader = options.loader, .seed = options.seed, .predict = predict, .take = take},
                 communicator);
           }});
}

Batch Runner::predict_batch(const Model& model, const Batch& batch) {
  return {{"logits", model(batch["features"])}};
}

std::shared_ptr<Engine> Runner::get_engine() {
  return options().engine;
}

std::optional<std::uint64_t> Runner::get_seed() {
  return options().seed;
}

HParams Runner::get_hparams() {
  return options().hparams;
}

data::Loaders Runner::get_loaders() {
  data::Loaders loaders = options().loaders;
  for (const auto& [name, dataset] : get_datasets()) {
    if (dataset == nullptr) {
      throw ConfigError("get_datasets: '{}': expected a data set, got a null pointer", name);
    }
    loaders.set(name, {dataset, get_loader_options(name)});
  }
  for (const auto& [name, sampler] : get_samplers()) {
    if (!loaders.contains(name)) {
      throw ConfigError("get_samplers: there is no loader '{}'; {}", name,
                        suggest(name, loaders.names()));
    }
    const data::Loader& loader = loaders.at(name);
    data::LoaderOptions changed = loader.options();
    changed.shuffle = false;  // the sampler decides the order
    changed.sampler = sampler;
    loaders.set(name, data::Loader(loader.dataset(), changed));
  }
  return loaders;
}

data::LoaderOptions Runner::get_loader_options(const std::string& name) {
  const data::Loaders& given = options().loaders;
  if (given.contains(name)) return given.at(name).options();
  return {.batch_size = 32, .shuffle = is_train_loader(name)};
}

Model Runner::get_model() {
  return options().model;
}

Named<Model> Runner::get_models() {
  return options().models;
}

Criterion Runner::get_criterion() {
  return options().criterion;
}

Named<Criterion> Runner::get_criterions() {
  return options().criterions;
}

optim::OptimizerSpec Runner::get_optimizer() {
  return options().optimizer;
}

Named<optim::OptimizerSpec> Runner::get_optimizers() {
  return options().optimizers;
}

optim::SchedulerSpec Runner::get_scheduler() {
  return options().scheduler;
}

Named<optim::SchedulerSpec> Runner::get_schedulers() {
  return options().schedulers;
}

Phases Runner::get_phases() {
  return options().phases;
}

Callbacks Runner::get_callbacks() {
  return options().callbacks;
}

std::vector<std::shared_ptr<Logger>> Runner::get_loggers() {
  return options().loggers;
}

const TrainOptions& Runner::options() const {
  if (options_ == nullptr) throw Error("options() of a runner can be called only inside train()");
  return *options_;
}

}  // namespace lockstep
