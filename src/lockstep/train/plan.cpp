#include "lockstep/train/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/compute/autocast.h"
#include "lockstep/data/sharding.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/log/loader_name.h"
#include "lockstep/optim/scale_lr.h"
#include "lockstep/train/combined_model.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/train_step.h"

namespace lockstep {
namespace {

// The message of an error in a part. The title is not repeated if the reason begins with it.
std::string titled(const PlanPart& part, const std::string& reason) {
  const bool is_named = part.title.empty() || reason.starts_with(part.title + ":");
  return is_named ? reason : part.title + ": " + reason;
}

void check_loader(const std::string& name, const data::Loader& loader, std::int64_t shards) {
  check_loader_name(name);
  constexpr std::array kPrefixes = {"train", "valid", "test", "infer"};
  const bool known =
      std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); });
  if (!known) {
    throw PlanError(loader_part(name),
                    "expected a name that begins with train, valid, test or infer, which says what "
                    "it is used for");
  }
  if (data::epoch_size(loader, shards).batches > 0) return;
  if (loader.dataset()->size() == 0) throw PlanError(loader_part(name), "its dataset is empty");
  throw PlanError(
      loader_part(name),
      fmt::format("has no batch: its {} samples are fewer than one batch needs ({}), "
                  "and drop_last is set",
                  loader.dataset()->size(), describe(data::batch_split(loader, shards))));
}

// Batch norm over all workers needs a sample from each of them in every batch.
void check_sync_bn(const Plan& plan) {
  if (!plan.engine->synchronizes_batch_norm()) return;
  const std::int64_t shards = plan.engine->shards();
  for (const auto& [name, loader] : plan.loaders) {
    if (!is_train_loader(name)) continue;
    const data::ShardedEpoch epoch(loader, {}, shards);
    if (epoch.batches() == 0 || epoch.slice(epoch.batches() - 1, shards - 1).count > 0) continue;
    throw PlanError(loader_part(name),
                    fmt::format("sync_bn: the last batch does not have a sample for each of {} "
                                "workers; set its drop_last",
                                shards));
  }
}

void check_loaders(const Plan& plan) {
  if (plan.loaders.size() == 0) {
    throw ConfigError(
        "loaders: expected at least a 'train' loader, got none; pass .loaders or "
        "override get_loaders()");
  }
  for (const auto& [name, loader] : plan.loaders) {
    check_loader(name, loader, plan.engine->shards());
  }
  const auto names = plan.loaders.names();
  if (std::ranges::none_of(names, is_train_loader)) {
    throw ConfigError("loaders: expected one whose name begins with 'train', got {}",
                      join(names, ", "));
  }
  check_sync_bn(plan);
}

// An option for one thing and the option for several of its kind, which exclude each other.
template <typename T>
Named<T> one_or_several(const std::string& kind, const T& one, const Named<T>& several) {
  if (one && !several.empty()) {
    throw ConfigError("{0} and {0}s: expected one of the two, got both; {0}s has: {1}", kind,
                      join(several.names(), ", "));
  }
  for (const auto& [name, value] : several) {
    if (!value) throw ConfigError("{}s: '{}' is empty", kind, name);
  }
  if (one) return Named<T>{{kind, one}}.titled(kind + "s");
  return several.titled(kind + "s");
}

// A tensor in two networks would be updated by two optimizers.
void check_shared_parameters(const Plan& plan) {
  std::map<const c10::TensorImpl*, std::pair<std::string, std::string>> seen;  // optimizer, name
  const auto note = [&](const std::string& owner, const NamedTensors& parameters) {
    for (const auto& [name, tensor] : parameters) {
      if (!tensor.defined()) continue;
      const auto [place, fresh] =
          seen.try_emplace(tensor.unsafeGetTensorImpl(), std::pair(owner, name));
      if (fresh || place->second.first == owner) continue;
      throw ConfigError(
          "models: '{}' and '{}' are the same tensor, in networks that are trained separately; "
          "train them together with one .optimizer, or give each its own tensor",
          place->second.second, name);
    }
  };
  for (const auto& optimizer : plan.optimizers) {
    note("optimizer " + optimizer.name, parameters_of(plan, optimizer));
  }
  for (const auto& name : untrained_networks(plan)) {
    note("network " + name, in_network(name, plan.models[name].parameters()));
  }
}

std::vector<PlannedOptimizer> planned_optimizers(const TrainOptions& options,
                                                 const Named<Model>& models) {
  const auto optimizers = one_or_several("optimizer", options.optimizer, options.optimizers);
  one_or_several("scheduler", options.scheduler, options.schedulers);  // refuses both
  std::vector<PlannedOptimizer> planned;
  for (const auto& [name, spec] : optimizers) {
    PlannedOptimizer one{.name = name, .spec = spec, .scheduler = options.scheduler};
    if (options.optimizer) {
      one.networks = models.names();
    } else if (models.contains(name)) {
      one.networks = {name};
    } else {
      throw ConfigError("optimizers: '{0}' trains the network '{0}', which does not exist; {1}",
                        name, suggest(name, models.names()));
    }
    if (options.schedulers.contains(name)) one.scheduler = options.schedulers[name];
    planned.push_back(std::move(one));
  }
  for (const auto& [name, scheduler] : options.schedulers) {
    if (optimizers.contains(name)) continue;
    throw ConfigError("schedulers: '{0}' belongs to the optimizer '{0}', which does not exist; {1}",
                      name, suggest(name, optimizers.names()));
  }
  return planned;
}

// Names and numbers of phases, without what they step.
std::vector<Phase> named_phases(const Phases& phases) {
  std::set<std::string> seen;
  std::vector<Phase> named(phases.begin(), phases.end());
  for (Phase& phase : named) {
    if (phase.name.empty()) throw ConfigError("phases: expected a name, got an empty one");
    if (!seen.insert(phase.name).second) {
      throw ConfigError("phases: the name '{}' comes twice", phase.name);
    }
    if (phase.every < 1) {
      throw ConfigError("phases: '{}': every: expected 1 or more, got {}", phase.name, phase.every);
    }
    if (phase.optimizers.empty()) phase.optimizers = {phase.name};
  }
  if (!named.empty() && std::ranges::none_of(named, [](const Phase& p) { return p.every == 1; })) {
    throw ConfigError(
        "phases: expected one that takes place in every batch (every = 1): a batch without a phase "
        "would be read for nothing");
  }
  return named;
}

// The optimizers that the phases step, each by exactly one.
void check_stepped(const std::vector<Phase>& phases, const std::vector<std::string>& optimizers) {
  std::map<std::string, std::string> stepped_by;
  for (const Phase& phase : phases) {
    for (const std::string& name : phase.optimizers) {
      if (std::ranges::find(optimizers, name) == optimizers.end()) {
        throw ConfigError(
            "phases: '{}' steps the optimizer '{}', which does not exist; {}; a phase with another "
            "name than its optimizer says which one in .optimizers",
            phase.name, name, suggest(name, optimizers));
      }
      const auto [place, fresh] = stepped_by.emplace(name, phase.name);
      if (!fresh) {
        throw ConfigError("phases: '{}' and '{}' both step the optimizer '{}', expected one phase",
                          place->second, phase.name, name);
      }
    }
  }
  for (const std::string& name : optimizers) {
    if (stepped_by.contains(name)) continue;
    throw ConfigError("phases: none steps the optimizer '{}'; add its name to a phase's optimizers",
                      name);
  }
}

std::vector<Phase> planned_phases(const Phases& phases,
                                  const std::vector<PlannedOptimizer>& optimizers) {
  std::vector<std::string> names;
  for (const auto& optimizer : optimizers) names.push_back(optimizer.name);
  if (phases.empty()) return {Phase{.name = "", .optimizers = names}};
  std::vector<Phase> planned = named_phases(phases);
  check_stepped(planned, names);
  return planned;
}

// The networks of `plan`, and all of them together.
void set_models(Plan& plan, const Model& model, const Named<Model>& models) {
  plan.models = one_or_several("model", model, models);
  if (plan.models.empty()) {
    throw ConfigError(
        "model: expected one, got none; pass .model or .models, or override get_model()");
  }
  plan.model = model ? model : Model::combine(plan.models);
}

void set_criterions(Plan& plan, const Criterion& criterion, const Named<Criterion>& criterions) {
  plan.criterions = one_or_several("criterion", criterion, criterions);
  if (plan.criterions.size() == 1) plan.criterion = plan.criterions.begin()->second;
}

// By the samples of a step of the first train loader.
void scale_rates(Plan& plan) {
  const auto& base = plan.options.lr_base_batch_size;
  if (!base) return;
  std::int64_t samples = 0;
  for (const auto& [name, loader] : plan.loaders) {
    if (!is_train_loader(name)) continue;
    samples =
        data::batch_split(loader, plan.engine->shards()).global * plan.options.accumulation_steps;
    break;
  }
  plan.lr_factor = static_cast<double>(samples) / static_cast<double>(*base);
  for (PlannedOptimizer& planned : plan.optimizers) {
    planned.scheduler = optim::scale_lr(planned.scheduler, plan.lr_factor);
    if (!optim::is_made_already(planned.spec)) continue;
    throw PlanError(
        optimizer_part(plan, planned),
        "lr_base_batch_size: expected an optimizer that the run makes, got a torch "
        "optimizer that exists, whose rate would be scaled again by the next run; pass a "
        "function that makes it");
  }
}

void set_parts(Plan& plan) {
  const TrainOptions& options = plan.options;
  set_models(plan, options.model, options.models);
  set_criterions(plan, options.criterion, options.criterions);
  plan.optimizers = planned_optimizers(options, plan.models);
  if (plan.optimizers.empty()) {
    throw ConfigError(
        "optimizer: expected one, got none; pass .optimizer or .optimizers, or override "
        "get_optimizer()");
  }
  plan.phases = planned_phases(options.phases, plan.optimizers);
  check_shared_parameters(plan);
  if (plan.keys && plan.models.size() > 1) {
    throw ConfigError(
        "models: a SupervisedRunner sends batches through one network, got {}: derive from Runner "
        "(or SupervisedRunner) and override handle_batch",
        join(plan.models.names(), ", "));
  }
}

// The metrics that a loader will have, if the runner and every callback list their own. Nothing if
// one of them may add any metric.
std::optional<std::vector<std::string>> known_metrics(
    const Plan& plan, const std::optional<std::vector<std::string>>& of_runner) {
  if (!of_runner) return std::nullopt;
  std::vector<std::string> names;
  const auto add_average = [&](const std::string& name) {
    for (const char* const suffix : {"", "/std"}) names.push_back(name + suffix);
  };
  for (const auto& optimizer : plan.optimizers) {
    const std::string suffix = plan.optimizers.size() > 1 ? "/" + optimizer.name : "";
    for (const char* const name : {"lr", "momentum"}) names.push_back(name + suffix);
  }
  for (const auto& phase : plan.phases) {
    const std::string suffix = phase.name.empty() ? "" : "/" + phase.name;
    names.push_back("gradient/norm" + suffix);
    if (plan.scaler) {
      for (const char* const name : {"gradient/scale", "gradient/skipped"}) {
        add_average(name + suffix);
      }
    }
    add_average(plan.loss_key + suffix);
  }
  const bool has_total = !plan.phases.front().name.empty();  // of the losses of all phases
  if (has_total) names.push_back(plan.loss_key);
  for (const auto& name : *of_runner) add_average(name);
  for (const auto& callback : plan.callbacks) {
    const auto added = callback->traits().metric_names;
    if (!added) return std::nullopt;
    names.insert(names.end(), added->begin(), added->end());
  }
  return names;
}

// The metrics that are losses: that of the run, those of its phases, and those of the terms of a
// supervised loss.
std::vector<std::string> loss_names(const Plan& plan) {
  std::vector<std::string> names;
  if (plan.keys) names = loss_metrics(*plan.keys);
  names.push_back(plan.loss_key);
  for (const auto& phase : plan.phases) {
    if (!phase.name.empty()) names.push_back(plan.loss_key + "/" + phase.name);
  }
  return names;
}

// Which value of a metric is better, as the loss (smaller) or a callback says.
std::optional<Better> better_of(std::string_view metric, const std::vector<std::string>& losses,
                                const std::vector<CallbackPtr>& callbacks) {
  if (std::ranges::find(losses, metric) != losses.end()) return Better::kSmaller;
  for (const auto& callback : callbacks) {
    if (const auto better = callback->better(metric)) return better;
  }
  return std::nullopt;
}

Selection selection_of(const Plan& plan) {
  const TrainOptions& options = plan.options;
  if (!options.valid_loader) return {};
  if (!plan.loaders.contains(*options.valid_loader)) {
    throw ConfigError("valid_loader: there is no loader '{}'; {}", *options.valid_loader,
                      suggest(*options.valid_loader, plan.loaders.names()));
  }
  const MetricKey key{*options.valid_loader, options.valid_metric.value_or(plan.loss_key)};
  const State state = state_of(plan);
  check_metric_key(state, key, "valid_metric");
  return {.key = key,
          .minimize = minimizes(state, {.said = options.minimize_valid_metric,
                                        .metric = key.metric,
                                        .asked_by = "valid_metric",
                                        .option = "minimize_valid_metric"})};
}

void check_engine(const TrainOptions& options) {
  if (options.engine == nullptr) return;
  for (const auto& [name, count] :
       {std::pair("workers", options.workers), std::pair("shards", options.shards)}) {
    if (!count) continue;
    throw ConfigError(
        "{}: {} and an engine contradict each other; set it in the options of the engine", name,
        *count);
  }
  if (options.max_restarts > 0 && options.engine->restarts() == Engine::Restarts::kNever) {
    throw PlanError(named_part("engine"),
                    fmt::format("max_restarts is {}, and this engine has no workers that can be "
                                "made anew; use a DistributedDataParallelEngine",
                                options.max_restarts));
  }
  // If workers are requested, a single process would be wrong, and the user would not notice it.
  if (options.ddp && dynamic_cast<DeviceEngine*>(options.engine.get()) != nullptr) {
    throw PlanError(named_part("engine"),
                    "a DeviceEngine is one process, and ddp = true asks for several: they "
                    "contradict each other; leave the engine out, or use a "
                    "DistributedDataParallelEngine");
  }
}

}  // namespace

PlanPart loader_part(const std::string& name) {
  return {.path = "loaders/" + name, .title = fmt::format("loader '{}'", name)};
}

PlanPart named_part(const std::string& name) {
  return {.path = name, .title = name};
}

PlanError::PlanError(const PlanPart& part, const std::string& reason)
    : ConfigError(titled(part, reason)), part_(part.path), reason_(reason) {}

std::shared_ptr<Engine> resolve_engine(const TrainOptions& options) {
  check_options(options);
  check_engine(options);
  if (options.engine != nullptr) return options.engine;
  if (!options.ddp) return std::make_shared<DeviceEngine>();
  return std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = options.workers, .shards = options.shards});
}

Plan resolve(const TrainOptions& options, std::shared_ptr<Engine> engine, RunnerParts runner) {
  Plan plan{.options = options,
            .model = {},
            .models = {},
            .criterion = {},
            .criterions = {},
            .optimizers = {},
            .phases = {},
            .loaders = limited_loaders(options, engine->shards()),
            .callbacks = options.callbacks.sorted(),
            .engine = engine,
            .loss_key = std::move(runner.loss_key),
            .handle_batch = std::move(runner.handle_batch),
            .keys = std::move(runner.keys),
            .runner_type = std::move(runner.type),
            .runner_options = std::move(runner.options),
            .known_metrics = std::nullopt,
            .selection = {},
            .step = {.accumulation_steps = options.accumulation_steps,
                     .clip_grad_norm = options.clip_grad_norm,
                     .clip_grad_value = options.clip_grad_value,
                     .clip_grad = options.clip_grad,
                     .wire = options.wire,
                     .log_gradient_norm = options.log_gradient_norm},
            .precision = precision_of(options, engine->device()),
            .scaler = {},
            .lr_factor = 1.0,
            .length = {},
            .goes_on_from = nullptr,
            .memory = nullptr};
  plan.scaler = scaler_of(options, plan.precision);
  check_loaders(plan);
  set_parts(plan);
  scale_rates(plan);
  plan.length = length_of(options, plan.loaders, plan.engine->shards());
  plan.options.num_epochs = plan.length.num_epochs;
  plan.known_metrics = known_metrics(plan, runner.metrics);
  plan.selection = selection_of(plan);
  plan.step.shards = plan.engine->shards();
  plan.step.sync_bn = plan.engine->synchronizes_batch_norm();
  return plan;
}

Plan resolve(const EvaluateOptions& options, RunnerParts runner) {
  for (const auto& callback : options.callbacks) {
    if (!callback->traits().needs_training) continue;
    throw ConfigError("evaluate_loader: {} makes sense in train() only", callback->name());
  }
  Plan plan;
  plan.options.seed = options.seed;
  plan.options.console = false;
  plan.options.dry_run = false;  // the evaluation itself finds a mistake as soon
  set_models(plan, options.model, options.models);
  set_criterions(plan, options.criterion, options.criterions);
  plan.phases = options.phases.empty() ? std::vector{Phase{}} : named_phases(options.phases);
  plan.loaders.set(options.name, options.loader);
  plan.callbacks = options.callbacks.sorted();
  plan.engine = options.engine != nullptr ? options.engine : std::make_shared<DeviceEngine>();
  plan.loss_key = std::move(runner.loss_key);
  plan.handle_batch = std::move(runner.handle_batch);
  plan.runner_type = std::move(runner.type);
  plan.runner_options = std::move(runner.options);
  plan.step.shards = plan.engine->shards();
  plan.precision = options.precision.value_or(Precision());
  check_precision(plan.precision, plan.engine->device());
  if (data::epoch_size(options.loader, plan.step.shards).batches == 0) {
    throw ConfigError("evaluate_loader: the loader is empty");
  }
  return plan;
}

NamedTensors parameters_of(const Plan& plan, const PlannedOptimizer& optimizer) {
  if (optimizer.networks.size() == plan.models.size()) return plan.model.parameters();
  NamedTensors found;
  for (const auto& name : optimizer.networks) {
    for (auto& item : in_network(name, plan.models[name].parameters())) {
      found.push_back(std::move(item));
    }
  }
  return found;
}

std::vector<std::string> untrained_networks(const Plan& plan) {
  std::vector<std::string> names;
  if (plan.optimizers.empty()) return names;
  for (const auto& [name, network] : plan.models) {
    const bool is_trained = std::ranges::any_of(plan.optimizers, [&, &n = name](const auto& item) {
      return std::ranges::find(item.networks, n) != item.networks.end();
    });
    if (!is_trained) names.push_back(name);
  }
  return names;
}

const Phase& phase_of(const Plan& plan, const PlannedOptimizer& optimizer) {
  return *std::ranges::find_if(plan.phases, [&](const Phase& phase) {
    return std::ranges::find(phase.optimizers, optimizer.name) != phase.optimizers.end();
  });
}

optim::ScheduleContext schedule_of(const Plan& plan, const PlannedOptimizer& optimizer) {
  optim::ScheduleContext run = plan.length.schedule();
  const std::int64_t every = phase_of(plan, optimizer).every;
  if (every == 1) return run;
  const std::int64_t accumulation = plan.step.accumulation_steps;
  run.steps_per_epoch = plan.length.goes_on
                            ? (run.steps_per_epoch + every - 1) / every
                            : steps_per_epoch(plan.loaders, accumulation, plan.step.shards, every);
  if (run.num_steps) {
    // The end of an epoch may cause an update before accumulation_steps batches are there.
    const std::int64_t more = accumulation > 1 ? run.num_epochs : 0;
    run.num_steps = std::max<std::int64_t>(*run.num_steps / every + more, 1);
  }
  return run;
}

PlanPart optimizer_part(const Plan& plan, const PlannedOptimizer& optimizer,
                        const std::string& kind) {
  if (plan.options.optimizers.empty()) return named_part(kind);
  return {.path = fmt::format("{}s/{}", kind, optimizer.name),
          .title = fmt::format("{} '{}'", kind, optimizer.name)};
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Plan& plan,
                                                 const PlannedOptimizer& optimizer,
                                                 optim::FlatParameters& parameters) {
  auto made = optimizer.spec.make(parameters);
  if (plan.lr_factor != 1.0) made->set_lr(made->lr() * plan.lr_factor);
  return made;
}

State state_of(const Plan& plan) {
  State state;
  state.model = plan.model;
  state.models = plan.models;
  state.criterion = plan.criterion;
  state.criterions = plan.criterions;
  // The loop and the dry run put their own in.
  state.optimizers = state.optimizers.titled("optimizers");
  state.schedulers = state.schedulers.titled("schedulers");
  state.engine = plan.engine;
  state.precision = plan.precision;
  state.loaders = plan.loaders;
  state.logdir = plan.options.logdir;
  state.seed = plan.options.seed.value_or(state.seed);
  state.hparams = plan.options.hparams;
  state.progress.num_epochs = plan.options.num_epochs;
  state.loss_key = plan.loss_key;
  state.known_metrics = plan.known_metrics;
  state.better = [all = plan.callbacks, losses = loss_names(plan)](std::string_view metric) {
    return better_of(metric, losses, all);
  };
  state.selection = plan.selection;
  return state;
}

}  // namespace lockstep
