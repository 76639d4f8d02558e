#include "lockstep/callback/builtin.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/callback/batch_overfit.h"
#include "lockstep/callback/check_run.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/progress_bar.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/callback/timer.h"
#include "lockstep/checkpoint/store.h"

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
  return all;
}

CallbackPtr progress_callback() {
  return std::make_shared<ProgressBarCallback>();
}

}  // namespace lockstep
