#include "lockstep/train/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/text.h"
#include "lockstep/data/sharding.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/log/loader_name.h"

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

void check_parts(const Plan& plan) {
  if (!plan.model) {
    throw ConfigError("model: expected one, got none; pass .model or override get_model()");
  }
  if (!plan.optimizer) {
    throw ConfigError(
        "optimizer: expected one, got none; pass .optimizer or override get_optimizer()");
  }
}

// The metrics that a loader will have, if the runner and every callback list their own. Nothing if
// one of them may add any metric.
std::optional<std::vector<std::string>> known_metrics(
    const Plan& plan, const std::optional<std::vector<std::string>>& of_runner) {
  if (!of_runner) return std::nullopt;
  std::vector<std::string> names = {"lr", "momentum", "gradient/norm"};
  const auto add_average = [&](const std::string& name) {
    for (const char* const suffix : {"", "/std"}) names.push_back(name + suffix);
  };
  add_average(plan.loss_key);
  for (const auto& name : *of_runner) add_average(name);
  for (const auto& callback : plan.callbacks) {
    const auto added = callback->traits().metric_names;
    if (!added) return std::nullopt;
    names.insert(names.end(), added->begin(), added->end());
  }
  return names;
}

// Which value of a metric is better, as the loss (smaller) or a callback says.
std::optional<Better> better_of(std::string_view metric, const std::string& loss_key,
                                const std::vector<CallbackPtr>& callbacks) {
  if (metric == loss_key) return Better::kSmaller;
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
            .model = options.model,
            .criterion = options.criterion,
            .optimizer = options.optimizer,
            .scheduler = options.scheduler,
            .loaders = options.loaders,
            .callbacks = options.callbacks.sorted(),
            .engine = std::move(engine),
            .loss_key = std::move(runner.loss_key),
            .handle_batch = std::move(runner.handle_batch),
            .keys = std::move(runner.keys),
            .known_metrics = std::nullopt,
            .selection = {},
            .step = {.accumulation_steps = options.accumulation_steps,
                     .clip_grad_norm = options.clip_grad_norm,
                     .clip_grad_value = options.clip_grad_value}};
  check_loaders(plan);
  check_parts(plan);
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
  plan.model = options.model;
  plan.criterion = options.criterion;
  plan.loaders.set("valid", options.loader);
  plan.callbacks = options.callbacks.sorted();
  plan.engine = options.engine != nullptr ? options.engine : std::make_shared<DeviceEngine>();
  plan.loss_key = std::move(runner.loss_key);
  plan.handle_batch = std::move(runner.handle_batch);
  plan.step.shards = plan.engine->shards();
  if (data::epoch_size(options.loader, plan.step.shards).batches == 0) {
    throw ConfigError("evaluate_loader: the loader is empty");
  }
  return plan;
}

State state_of(const Plan& plan) {
  State state;
  state.model = plan.model;
  state.criterion = plan.criterion;
  state.engine = plan.engine;
  state.loaders = plan.loaders;
  state.logdir = plan.options.logdir;
  state.seed = plan.options.seed.value_or(state.seed);
  state.hparams = plan.options.hparams;
  state.progress.num_epochs = plan.options.num_epochs;
  state.loss_key = plan.loss_key;
  state.known_metrics = plan.known_metrics;
  state.better = [all = plan.callbacks, loss = plan.loss_key](std::string_view metric) {
    return better_of(metric, loss, all);
  };
  state.selection = plan.selection;
  return state;
}

}  // namespace lockstep
