#include "lockstep/callback/builtin.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/callback/batch_overfit.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/freeze.h"
#include "lockstep/callback/progress_bar.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/callback/timer.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/train/combined_model.h"

namespace lockstep {
namespace {

template <typename C>
bool has(const Callbacks& callbacks) {
  return std::ranges::any_of(callbacks, [](const CallbackPtr& callback) {
    return dynamic_cast<const C*>(&callback->inner()) != nullptr;
  });
}

// Each CheckpointCallback deletes the files in its folder that it does not know, so two cannot
// share one.
void check_checkpoint_folders(const TrainOptions& options) {
  namespace fs = std::filesystem;
  std::set<fs::path> folders;
  for (const auto& callback : options.callbacks) {
    const auto* checkpoint = dynamic_cast<const CheckpointCallback*>(&callback->inner());
    if (checkpoint == nullptr) continue;
    // Without a logdir there is no default folder; the callback's own check says so.
    const fs::path standard = checkpoint::folder_in(options.logdir.value_or("."));
    const fs::path folder = checkpoint->folder().value_or(standard);
    if (!folders.insert(fs::weakly_canonical(fs::absolute(folder))).second) {
      throw ConfigError("CheckpointCallback: two of them write to one folder; give each its own");
    }
  }
}

// The parameters that an optimizer's settings freeze, by name.
std::vector<std::string> frozen_by(const optim::OptimizerSpec& optimizer,
                                   const NamedTensors& parameters, const std::string& option) {
  std::vector<std::string> frozen;
  bool any_left = false;
  for (const auto& [name, parameter] : parameters) {
    if (optimizer.freezes(name)) {
      frozen.push_back(name);
    } else {
      any_left = any_left || parameter.requires_grad();
    }
  }
  if (any_left || frozen.empty()) return frozen;
  throw ConfigError("{}: its settings freeze all parameters, so there is nothing to train", option);
}

std::vector<std::string> frozen_parameters(const TrainOptions& options) {
  if (options.optimizer) {
    const Model& one = options.model;
    const auto all = one || options.models.empty() ? one : Model::combine(options.models);
    return all ? frozen_by(options.optimizer, all.parameters(), "optimizer")
               : std::vector<std::string>();
  }
  std::vector<std::string> frozen;
  for (const auto& [name, optimizer] : options.optimizers) {
    const bool is_only = options.model && name == "model";
    if (!is_only && !options.models.contains(name)) continue;  // refused later
    const NamedTensors parameters =
        is_only ? options.model.parameters() : in_network(name, options.models[name].parameters());
    for (auto& parameter : frozen_by(optimizer, parameters, "optimizers/" + name)) {
      frozen.push_back(std::move(parameter));
    }
  }
  return frozen;
}

}  // namespace

Callbacks with_builtin_callbacks(const TrainOptions& options) {
  const Callbacks& given = options.callbacks;
  check_checkpoint_folders(options);
  Callbacks all = given;
  const auto add = [&]<typename C>(bool wanted, C callback) {
    if (wanted && !has<C>(given)) all.add(std::move(callback));
  };
  add(options.verbose, ProgressBarCallback(Console::standard(), options.progress_bars));
  add(options.timeit, TimerCallback());
  add(options.check, CheckRunCallback());
  add(options.overfit, BatchOverfitCallback());
  add(options.scheduler.has_value() || !options.schedulers.empty(), SchedulerCallback());
  add(options.logdir.has_value(), CheckpointCallback());
  if (auto names = frozen_parameters(options); !names.empty()) {
    all.add(FreezeCallback({.names = std::move(names)}));
  }
  return all;
}

CallbackPtr progress_callback() {
  return std::make_shared<ProgressBarCallback>();
}

}  // namespace lockstep
