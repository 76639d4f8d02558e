#include "lockstep/runner/stages.h"

#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/train/snapshot.h"

namespace lockstep {
namespace {

std::filesystem::path checkpoints_of(const Stage& stage) {
  const auto logdir = options_of(stage).logdir;
  if (!logdir) {
    throw ConfigError("stage '{}': to resume stages, the logdir of the earlier run is needed",
                      stage.name);
  }
  return checkpoint::folder_in(*logdir);
}

}  // namespace

bool is_stage_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos && name.front() != '.';
}

void check_stages(const std::vector<Stage>& stages) {
  if (stages.empty()) throw ConfigError("stages: expected at least one, got none");
  std::set<std::string> names;
  for (const Stage& stage : stages) {
    if (stage.name.empty() && stages.size() == 1) continue;
    if (!is_stage_name(stage.name)) {
      throw ConfigError("stages: expected a name that a folder can have, got '{}'", stage.name);
    }
    if (!names.insert(stage.name).second) {
      throw ConfigError("stages: two of them are called '{}'; give each its own name", stage.name);
    }
  }
}

TrainOptions options_of(const Stage& stage) {
  TrainOptions options = stage.options;
  if (options.logdir && !stage.name.empty()) options.logdir = *options.logdir / stage.name;
  return options;
}

void share_models(std::vector<Stage>& stages) {
  for (std::size_t i = 1; i < stages.size(); ++i) {
    TrainOptions& options = stages[i].options;
    if (options.model || !options.models.empty()) continue;
    options.model = stages[i - 1].options.model;
    options.models = stages[i - 1].options.models;
  }
}

void resume_stages(std::vector<Stage>& stages, const std::string& checkpoint) {
  share_models(stages);
  std::optional<std::size_t> last;  // the last stage that the earlier run has started
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (std::filesystem::exists(checkpoints_of(stages[i]) / "last.pth")) last = i;
  }
  if (!last) return;
  TrainOptions& options = stages[*last].options;
  const auto folder = checkpoints_of(stages[*last]);
  const auto saved = checkpoint::load_by_name("last", folder);
  const auto run = saved.state.get<StateDict>("run");
  const bool is_finished =
      options.num_steps
          ? run.get_or("update_step", run.get<std::int64_t>("batch_step")) >= *options.num_steps
          : run.get<std::int64_t>("epoch") >= options.num_epochs;
  // A seed of the earlier run's command line was the seed of all stages.
  if (!options.seed) {
    for (std::size_t i = *last; i < stages.size(); ++i) {
      auto& seed = stages[i].options.seed;
      if (!seed) seed = snapshot_seed(saved.state);
    }
  }
  std::size_t first = *last;
  if (is_finished && *last + 1 < stages.size()) {
    // The weights with which the finished stage ended.
    const bool ends_with_best =
        options.load_best_on_end && std::filesystem::exists(folder / "best.pth");
    first += 1;
    stages[first].options.weights_skip.clear();
    stages[first].options.network_weights = {};
    stages[first].options.weights = ends_with_best ? folder / "best.pth" : saved.path;
  } else {
    // If the stage had stopped early, it stops again immediately.
    options.resume = checkpoint;
  }
  stages.erase(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace lockstep
