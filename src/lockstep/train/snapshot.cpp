#include "lockstep/train/snapshot.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/data/sharding.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFormat = 1;

// Callbacks with the same name are numbered in their order.
std::vector<std::pair<std::string, CallbackPtr>> with_keys(
    const std::vector<CallbackPtr>& callbacks) {
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

StateDict make_snapshot(const State& state, const Position& position,
                        const std::vector<CallbackPtr>& callbacks, const StateDict& averages) {
  StateDict snapshot{{"lockstep", kFormat},
                     {"model_state_dict", state.model.state()},
                     {"criterion_state_dict", state.criterion.state()},
                     {"optimizer_state_dict", state.optimizer->state()}};
  if (state.scheduler != nullptr) {
    snapshot.set("scheduler_state_dict", state.scheduler->state());
  }
  const LoaderSizes sizes = loader_sizes(state);
  snapshot.set("run", StateDict{{"seed", state.seed},
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
                                {"loader_end_requested", state.loader_end_requested}});
  snapshot.set("epoch_metrics", checkpoint::to_state(state.epoch_metrics));
  snapshot.set("history", history_state(state.history));
  snapshot.set("averages", averages);
  StateDict remembered;
  for (const auto& [key, callback] : with_keys(callbacks)) {
    StateDict memory = callback->state();
    if (memory.size() > 0) remembered.set(key, std::move(memory));
  }
  snapshot.set("callbacks", std::move(remembered));
  snapshot.set("hparams", hparams_state(state.hparams));
  return snapshot;
}

Restored restore_snapshot(const StateDict& snapshot, State& state,
                          const std::vector<CallbackPtr>& callbacks) {
  if (!snapshot.contains("run") || !snapshot.contains("optimizer_state_dict")) {
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

  if (state.comm->is_primary()) {
    state.model.load_state(snapshot.get<StateDict>("model_state_dict"));
  }
  state.criterion.load_state(snapshot.get<StateDict>("criterion_state_dict"));
  state.optimizer->load_state(snapshot.get<StateDict>("optimizer_state_dict"));
  const bool saved_scheduler = snapshot.contains("scheduler_state_dict");
  if (saved_scheduler && state.scheduler != nullptr) {
    state.scheduler->load_state(snapshot.get<StateDict>("scheduler_state_dict"));
  } else if (saved_scheduler || state.scheduler != nullptr) {
    warn(saved_scheduler
             ? "resume: the checkpoint has a scheduler, this run has none"
             : "resume: this run has a scheduler, the checkpoint has none: the scheduler starts "
               "from its beginning");
  }
  state.progress.epoch = restored.position.finished_epochs;
  state.progress.batch_step = run.get<std::int64_t>("batch_step");
  state.progress.sample_step = run.get<std::int64_t>("sample_step");
  // An older checkpoint does not contain them. Without accumulation, every batch is a step.
  state.progress.update_step = run.get_or("update_step", state.progress.batch_step);
  state.steps_before_epoch = run.get_or("steps_before_epoch", state.progress.update_step);
  state.loader_end_requested =
      !restored.position.loader.empty() && run.get<bool>("loader_end_requested");
  state.epoch_metrics = checkpoint::metrics_from_state(snapshot.get<StateDict>("epoch_metrics"));
  const auto history = snapshot.get<StateDict>("history");
  for (const auto& epoch : history.keys()) {
    state.history[std::stoll(epoch)] =
        checkpoint::metrics_from_state(history.get<StateDict>(epoch));
  }
  restore_callbacks(snapshot.get<StateDict>("callbacks"), callbacks, state.comm->is_primary());
  restored.averages = snapshot.get<StateDict>("averages");
  return restored;
}

StateDict without_tensors(const StateDict& snapshot, const optim::Optimizer& optimizer) {
  StateDict small = snapshot;
  for (const char* const key : {"model_state_dict", "documents"}) {
    if (small.contains(key)) small.erase(key);
  }
  if (snapshot.contains("optimizer_state_dict")) {
    small.set("optimizer_state_dict",
              optimizer.without_tensors(snapshot.get<StateDict>("optimizer_state_dict")));
  }
  return small;
}

std::uint64_t snapshot_seed(const StateDict& snapshot) {
  return static_cast<std::uint64_t>(snapshot.get<StateDict>("run").get<std::int64_t>("seed"));
}

}  // namespace lockstep
