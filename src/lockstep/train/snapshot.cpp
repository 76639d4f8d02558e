#include "lockstep/train/snapshot.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/data/sharding.h"
#include "lockstep/train/averaged_weights.h"
#include "lockstep/train/mixed_precision.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFormat = 2;
// Of a checkpoint without averaged weights, which older versions can resume, too.
constexpr std::int64_t kPlainFormat = 1;
constexpr const char* kRecords = "epoch_records";
constexpr const char* kTrained = "raw_model_state_dict";
// In "run":
constexpr const char* kStopReason = "stop_reason";
constexpr const char* kSkippedLoaders = "skipped_loaders";  // inside an epoch
// The average has changed since its statistics of batch norm were computed.
constexpr const char* kAverageNeedsBatchNorm = "average_needs_batch_norm";

// Callbacks with the same name are numbered in their order. Those that all ranks have come first,
// so that a callback has the same number on every rank.
std::vector<std::pair<std::string, CallbackPtr>> with_keys(std::vector<CallbackPtr> callbacks) {
  std::ranges::stable_partition(
      callbacks, [](const CallbackPtr& item) { return item->traits().ranks == Ranks::kAll; });
  std::map<std::string, int> seen;
  std::vector<std::pair<std::string, CallbackPtr>> keyed;
  for (const auto& callback : callbacks) {
    const std::string name = callback->name();
    const int nth = ++seen[name];
    keyed.emplace_back(nth == 1 ? name : fmt::format("{}.{}", name, nth), callback);
  }
  return keyed;
}

StateDict hparams_state(const HParams& hparams) {
  StateDict out;
  for (const auto& [name, value] : hparams) {
    std::visit([&, &key = name](const auto& held) { out.set(key, held); }, value);
  }
  return out;
}

StateDict history_state(const std::map<std::int64_t, EpochMetrics>& history) {
  StateDict out;
  for (const auto& [epoch, metrics] : history) {
    out.set(std::to_string(epoch), checkpoint::to_state(metrics));
  }
  return out;
}

StateList records_state(const EpochJournal::Entries& entries) {
  StateList records;
  for (const auto& [record, start] : entries) {
    const Progress& progress = record.progress;
    StateDict metrics;
    for (const auto& [name, value] : record.metrics) metrics.set(name, value);
    StateDict entry{{"of_loader", record.scope == Scope::kLoader},
                    {"loader", record.loader},
                    {"epoch", progress.epoch},
                    {"batch_step", progress.batch_step},
                    {"sample_step", progress.sample_step},
                    {"update_step", progress.update_step},
                    {"metrics", std::move(metrics)}};
    if (start) entry.set("start", *start);
    records.push_back(std::move(entry));
  }
  return records;
}

EpochJournal::Entries records_from(const StateList& records) {
  EpochJournal::Entries entries;
  for (const StateValue& value : records) {
    const auto* const entry = value.get_if<StateDict>();
    if (entry == nullptr) continue;
    const bool is_of_loader = entry->get<bool>("of_loader");
    Record record{.scope = is_of_loader ? Scope::kLoader : Scope::kEpoch,
                  .loader = entry->get<std::string>("loader"),
                  .progress = {.epoch = entry->get<std::int64_t>("epoch"),
                               .batch_step = entry->get<std::int64_t>("batch_step"),
                               .sample_step = entry->get<std::int64_t>("sample_step"),
                               .update_step = entry->get<std::int64_t>("update_step")}};
    const auto metrics = entry->get<StateDict>("metrics");
    for (const auto& name : metrics.keys()) record.metrics[name] = metrics.get<double>(name);
    std::optional<std::int64_t> start;
    if (entry->contains("start")) start = entry->get<std::int64_t>("start");
    entries.push_back({.record = std::move(record), .start = start});
  }
  return entries;
}

void restore_callbacks(const StateDict& saved, const std::vector<CallbackPtr>& callbacks,
                       bool is_primary) {
  std::map<std::string, StateDict> unclaimed;
  for (const auto& key : saved.keys()) unclaimed[key] = saved.get<StateDict>(key);
  for (const auto& [key, callback] : with_keys(callbacks)) {
    const auto found = unclaimed.find(key);
    if (found == unclaimed.end()) continue;
    callback->load_state(found->second);
    unclaimed.erase(found);
  }
  // The other ranks do not have all callbacks that rank 0 has.
  if (!is_primary) return;
  for (const auto& [key, ignored] : unclaimed) {
    warn(fmt::format(
        "resume: the checkpoint has the state of a callback {} that this run does not have", key));
  }
}

// Another order of updates inside an epoch would not continue it. Between epochs the user may
// change it, but not by accident.
void check_phases(const StateDict& run, const Position& position, const std::vector<Phase>& phases,
                  bool is_primary) {
  const auto then = run.get_or<std::string>("phases", "");
  const std::string now = describe(phases);
  if (then == now) return;
  const auto text = [](const std::string& what) { return what.empty() ? "none" : what; };
  if (!position.loader.empty()) {
    throw CheckpointError(
        "resume: the checkpoint was made inside an epoch with the phases {}, this run has {}; they "
        "can change only between epochs",
        text(then), text(now));
  }
  if (!is_primary) return;
  warn(fmt::format("resume: the checkpoint's run had the phases {}, this run has {}", text(then),
                   text(now)));
}

// With steps_per_epoch, the batches of an epoch begin where the epoch before ended, and without it
// at the beginning of the data. Inside an epoch, a change would repeat or leave out samples.
void check_steps_per_epoch(const StateDict& run, const Position& position,
                           const EpochRules& rules) {
  if (position.loader.empty()) return;
  std::optional<std::int64_t> then;
  if (run.contains("steps_per_epoch")) then = run.get<std::int64_t>("steps_per_epoch");
  if (then == rules.steps_per_epoch) return;
  const auto text = [](const std::optional<std::int64_t>& steps) {
    return steps ? fmt::format("{} steps_per_epoch", *steps) : "no steps_per_epoch";
  };
  throw CheckpointError(
      "resume: the checkpoint was made inside an epoch with {}, this run has {}; it can change "
      "only between epochs",
      text(then), text(rules.steps_per_epoch));
}

// The saved value of an optimizer: `saved` itself if the run has only one, else its entry.
StateDict of_optimizer(const StateDict& saved, const std::string& name,
                       const std::vector<std::string>& all) {
  if (all.size() == 1) return saved;
  if (!saved.contains(name) || saved.at(name).get_if<StateDict>() == nullptr) {
    throw CheckpointError("the checkpoint has no state of an optimizer '{}'; it has: {}", name,
                          join(saved.keys(), ", "));
  }
  return saved.get<StateDict>(name);
}

void restore_optimizers(const StateDict& snapshot, const State& state) {
  const auto names = state.optimizers.names();
  const auto saved = snapshot.get<StateDict>(kOptimizerPart);
  const bool saved_several =
      snapshot.get_or<StateDict>("run", {}).get_or<std::int64_t>("optimizers", 1) > 1;
  const bool alike = names.size() > 1
                         ? saved_several && std::ranges::is_permutation(saved.keys(), names)
                         : !saved_several;
  if (!alike) {
    throw CheckpointError(
        "the checkpoint's run had {}, this run has the optimizers {}",
        saved_several ? "the optimizers " + join(saved.keys(), ", ") : "one optimizer",
        join(names, ", "));
  }
  for (const auto& [name, optimizer] : state.optimizers) {
    optimizer->load_state(of_optimizer(saved, name, names));
  }
}

void restore_schedulers(const StateDict& snapshot, const State& state) {
  const auto names = state.optimizers.names();
  const auto saved = snapshot.get_or<StateDict>(kSchedulerPart, {});
  for (const std::string& name : names) {
    const bool is_saved = names.size() > 1 ? saved.contains(name) : saved.size() > 0;
    const bool is_here = state.schedulers.contains(name);
    if (is_saved && is_here) {
      state.schedulers[name]->load_state(of_optimizer(saved, name, names));
    } else if (is_saved || is_here) {
      const std::string of = names.size() > 1 ? fmt::format(" of '{}'", name) : "";
      warn(is_saved
               ? fmt::format("resume: the checkpoint has a scheduler{}, this run has none", of)
               : fmt::format("resume: this run has a scheduler{}, the checkpoint has none: the "
                             "scheduler starts from its beginning",
                             of));
    }
  }
}

// The weights are float32 with any precision, so it may change.
void check_same_precision(const StateDict& snapshot, const State& state) {
  const auto then = saved_precision(snapshot);
  if (!then || *then == state.precision || !state.comm->is_primary()) return;
  warn(fmt::format("resume: the checkpoint's run had the precision {}, this run has {}",
                   then->name(), state.precision.name()));
}

void restore_scaler(const StateDict& snapshot, const State& state) {
  const auto saved = snapshot.get_or<StateDict>("scaler_state_dict", {});
  if (state.scaler == nullptr) return;
  if (saved.size() > 0) {
    state.scaler->load_state(saved);
  } else if (state.comm->is_primary()) {
    warn(
        "resume: this run scales its loss, the checkpoint's run did not: the scale starts from its "
        "beginning");
  }
}

StateDict criterions_state(const RunState& run) {
  if (run.criterions.size() < 2) return run.criterion.view_state();
  StateDict all;
  for (const auto& [name, criterion] : run.criterions) all.set(name, criterion.view_state());
  return all;
}

void restore_criterions(const StateDict& saved, const RunState& run) {
  if (run.criterions.size() < 2) {
    run.criterion.load_state(saved);
    return;
  }
  for (const auto& [name, criterion] : run.criterions) {
    criterion.load_state(saved.get<StateDict>(name));
  }
}

// The states of all optimizers or schedulers.
template <typename T>
StateValue states_of(const Named<T*>& parts, bool several, StateDict (T::*state)() const) {
  StateDict all;
  for (const auto& [name, part] : parts) {
    if (!several) return (part->*state)();
    all.set(name, (part->*state)());
  }
  return all;
}

// The model goes on with the trained weights. The average goes on, too, if a callback asks for it.
void restore_weights(const StateDict& snapshot, const State& state) {
  auto weights = snapshot.get<StateDict>("model_state_dict");
  const auto trained = snapshot.get_or<StateDict>(kTrained, {});
  StateDict averaged;
  for (const auto& [name, value] : trained) {
    averaged.set(name, weights.at(name));
    weights.set(name, value);
  }
  state.model.load_state(weights);
  if (state.averaged == nullptr) return;
  // An older checkpoint does not say it.
  const bool needs_batch_norm =
      snapshot.get<StateDict>("run").get_or<bool>(kAverageNeedsBatchNorm, false);
  state.averaged->load(std::move(averaged), needs_batch_norm);
}

// Inside an epoch, samples that were used already must not be used again, so nothing that changes
// their order may change.
void check_position(const StateDict& run, const Position& position, const State& state) {
  if (position.loader.empty()) return;
  const data::Loader& loader = state.loaders.at(position.loader);
  const auto expect_same = [&](const char* what, std::int64_t now) {
    const auto then = run.get<std::int64_t>(what);
    if (then != now) {
      throw CheckpointError(
          "resume: the checkpoint was made inside an epoch with {} {}, this run "
          "has {}; it can change only between epochs",
          what, then, now);
    }
  };
  const std::int64_t shards = state.engine->shards();
  const data::EpochSize size = data::epoch_size(loader, shards);
  const data::BatchSplit split = data::batch_split(loader, shards);
  expect_same("seed", static_cast<std::int64_t>(state.seed));
  expect_same("shards", shards);
  expect_same("loader_batches", size.batches);
  expect_same("loader_batch_size", split.largest());
  // A checkpoint of version 0.1.0 does not contain it.
  if (run.contains("loader_global_batch_size")) {
    expect_same("loader_global_batch_size", split.global);
  }
  expect_same("loader_sample_count", size.samples);
}

// The sizes of the current loader, on which the order of its samples depends. The pass itself may
// have fewer batches, or more.
struct LoaderSizes {
  std::int64_t global_batch = 0;
  data::EpochSize epoch;
};
LoaderSizes loader_sizes(const State& state) {
  if (state.loader.empty()) return {};
  const data::Loader& loader = state.loaders.at(state.loader);
  const std::int64_t shards = state.engine->shards();
  return {.global_batch = data::batch_split(loader, shards).global,
          .epoch = data::epoch_size(loader, shards)};
}

}  // namespace

StateDict make_snapshot(const State& state, const SnapshotParts& parts,
                        const std::vector<CallbackPtr>& callbacks) {
  const Position& position = parts.position;
  const bool several = state.optimizers.size() > 1;
  StateDict trained;
  if (state.averaged != nullptr) trained = state.averaged->trained();
  StateDict snapshot{{"lockstep", trained.size() > 0 ? kFormat : kPlainFormat},
                     {"model_state_dict", weights_for_use(state)}};
  if (trained.size() > 0) snapshot.set(kTrained, std::move(trained));
  snapshot.set(kCriterionPart, criterions_state(state));
  snapshot.set(kOptimizerPart, states_of(state.optimizers, several, &optim::Optimizer::view_state));
  if (!state.schedulers.empty()) {
    snapshot.set(kSchedulerPart, states_of(state.schedulers, several, &optim::Scheduler::state));
  }
  if (state.scaler != nullptr) snapshot.set("scaler_state_dict", state.scaler->state());
  const LoaderSizes sizes = loader_sizes(state);
  StateDict run{{"seed", state.seed},
                {"epoch", position.finished_epochs},
                {"num_epochs", state.progress.num_epochs},
                {"batch_step", state.progress.batch_step},
                {"sample_step", state.progress.sample_step},
                {"update_step", state.progress.update_step},
                {"steps_before_epoch", state.steps_before_epoch},
                {"shards", state.engine->shards()},
                {"loader", position.loader},
                {"loader_batches_done", position.loader_batches_done},
                {"loader_batches", sizes.epoch.batches},
                {"loader_batch_size", state.loader_batch_size},
                {"loader_global_batch_size", sizes.global_batch},
                {"loader_sample_count", sizes.epoch.samples},
                {"loader_end_requested", state.loader_end_requested},
                {"precision", std::string(state.precision.name())}};
  const EpochRules& rules = parts.rules;
  if (rules.steps_per_epoch) run.set("steps_per_epoch", *rules.steps_per_epoch);
  const std::string phases = describe(rules.phases);
  if (!phases.empty()) run.set("phases", phases);
  if (parts.stop_reason) run.set(kStopReason, *parts.stop_reason);
  if (!position.loader.empty() && !state.skipped_loaders.empty()) {
    run.set(kSkippedLoaders, StateList(state.skipped_loaders.begin(), state.skipped_loaders.end()));
  }
  if (several) run.set("optimizers", static_cast<std::int64_t>(state.optimizers.size()));
  if (state.averaged != nullptr && state.averaged->needs_batch_norm()) {
    run.set(kAverageNeedsBatchNorm, true);
  }
  snapshot.set("run", std::move(run));
  snapshot.set("epoch_metrics", checkpoint::to_state(state.epoch_metrics));
  if (parts.records != nullptr) snapshot.set(kRecords, records_state(*parts.records));
  snapshot.set("history", history_state(state.history));
  snapshot.set("averages", parts.averages);
  StateDict remembered;
  for (const auto& [key, callback] : with_keys(callbacks)) {
    StateDict memory = callback->state();
    if (memory.size() > 0) remembered.set(key, std::move(memory));
  }
  snapshot.set("callbacks", std::move(remembered));
  snapshot.set("hparams", hparams_state(state.hparams));
  if (StateDict user = state.user.state(); user.size() > 0) {
    snapshot.set("user_state", std::move(user));
  }
  return snapshot;
}

Restored restore_snapshot(const StateDict& snapshot, State& state,
                          const std::vector<CallbackPtr>& callbacks, const EpochRules& rules) {
  if (!is_resumable(snapshot)) {
    throw CheckpointError(
        "resume: the checkpoint holds weights only; resume from a full checkpoint, or use weights "
        "instead of resume to start a new run");
  }
  if (const auto format = snapshot.get_or<std::int64_t>("lockstep", kFormat); format > kFormat) {
    throw CheckpointError(
        "resume: the checkpoint has format {}, this version of Lockstep reads up to {}; resume it "
        "with the version that wrote it, or a newer one",
        format, kFormat);
  }
  const auto run = snapshot.get<StateDict>("run");
  Restored restored;
  restored.position = {.finished_epochs = run.get<std::int64_t>("epoch"),
                       .loader = run.get<std::string>("loader"),
                       .loader_batches_done = run.get<std::int64_t>("loader_batches_done")};
  check_position(run, restored.position, state);
  check_steps_per_epoch(run, restored.position, rules);
  check_phases(run, restored.position, rules.phases, state.comm->is_primary());

  if (state.comm->is_primary()) restore_weights(snapshot, state);
  restore_criterions(snapshot.get<StateDict>(kCriterionPart), state);
  restore_optimizers(snapshot, state);
  restore_schedulers(snapshot, state);
  check_same_precision(snapshot, state);
  restore_scaler(snapshot, state);
  state.progress.epoch = restored.position.finished_epochs;
  state.progress.batch_step = run.get<std::int64_t>("batch_step");
  state.progress.sample_step = run.get<std::int64_t>("sample_step");
  // An older checkpoint does not contain them. Without accumulation, every batch is a step.
  state.progress.update_step = run.get_or("update_step", state.progress.batch_step);
  state.steps_before_epoch = run.get_or("steps_before_epoch", state.progress.update_step);
  state.loader_end_requested =
      !restored.position.loader.empty() && run.get<bool>("loader_end_requested");
  if (run.contains(kStopReason)) state.stop_reason = run.get<std::string>(kStopReason);
  for (const StateValue& name : run.get_or<StateList>(kSkippedLoaders, {})) {
    if (const auto* const text = name.get_if<std::string>()) state.skipped_loaders.insert(*text);
  }
  state.epoch_metrics = checkpoint::metrics_from_state(snapshot.get<StateDict>("epoch_metrics"));
  if (snapshot.contains(kRecords)) {
    restored.records = records_from(snapshot.get<StateList>(kRecords));
  }
  const auto history = snapshot.get<StateDict>("history");
  for (const auto& epoch : history.keys()) {
    state.history[std::stoll(epoch)] =
        checkpoint::metrics_from_state(history.get<StateDict>(epoch));
  }
  restore_callbacks(snapshot.get<StateDict>("callbacks"), callbacks, state.comm->is_primary());
  state.user.load_state(snapshot.get_or<StateDict>("user_state", {}));
  restored.averages = snapshot.get<StateDict>("averages");
  return restored;
}

void restore_parts(const StateDict& parts, State& state) {
  if (parts.contains(kCriterionPart)) {
    restore_criterions(parts.get<StateDict>(kCriterionPart), state);
  }
  const bool has_schedules = parts.contains(kSchedulerPart);
  if (parts.contains(kOptimizerPart)) {
    Named<optim::OptimizerPace> before;
    for (const auto& [name, optimizer] : state.optimizers) before.set(name, optimizer->pace());
    restore_optimizers(parts, state);
    for (const auto& [name, optimizer] : state.optimizers) {
      if (!has_schedules) optimizer->set_pace(before[name]);
    }
  }
  if (!has_schedules) return;
  if (state.schedulers.empty()) {
    throw CheckpointError("scheduler: the checkpoint has one, this run has none");
  }
  restore_schedulers(parts, state);
}

void forget_unsaved(const StateDict& snapshot, const std::vector<CallbackPtr>& callbacks) {
  const auto saved = snapshot.get<StateDict>("callbacks");
  for (const auto& [key, callback] : with_keys(callbacks)) {
    if (!saved.contains(key) && callback->state().size() > 0) callback->load_state({});
  }
}

void add_unsaved(StateDict& snapshot, const std::vector<CallbackPtr>& callbacks) {
  auto saved = snapshot.get<StateDict>("callbacks");
  for (const auto& [key, callback] : with_keys(callbacks)) {
    if (saved.contains(key)) continue;
    StateDict memory = callback->state();
    if (memory.size() > 0) saved.set(key, std::move(memory));
  }
  snapshot.set("callbacks", std::move(saved));
}

StateDict without_tensors(const StateDict& snapshot, const Named<optim::Optimizer*>& optimizers) {
  StateDict small = snapshot;
  for (const char* const key : {"model_state_dict", "documents", kRecords}) {
    if (small.contains(key)) small.erase(key);
  }
  // The key stays, because has_averaged_weights() must be the same on all ranks.
  if (small.contains(kTrained)) small.set(kTrained, StateDict());
  if (!snapshot.contains(kOptimizerPart)) return small;
  const auto saved = snapshot.get<StateDict>(kOptimizerPart);
  StateDict kept = saved;
  for (const auto& [name, optimizer] : optimizers) {
    if (optimizers.size() == 1) {
      kept = optimizer->without_tensors(saved);
    } else if (saved.contains(name) && saved.at(name).get_if<StateDict>() != nullptr) {
      kept.set(name, optimizer->without_tensors(saved.get<StateDict>(name)));
    }
  }
  small.set(kOptimizerPart, std::move(kept));
  return small;
}

bool has_averaged_weights(const StateDict& snapshot) {
  return snapshot.contains(kTrained);
}

bool is_resumable(const StateDict& checkpoint) {
  return checkpoint.contains("run") && checkpoint.contains(kOptimizerPart);
}

std::uint64_t snapshot_seed(const StateDict& snapshot) {
  return static_cast<std::uint64_t>(snapshot.get<StateDict>("run").get<std::int64_t>("seed"));
}

}  // namespace lockstep
