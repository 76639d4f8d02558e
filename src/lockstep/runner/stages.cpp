#include "lockstep/runner/stages.h"

#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/train/merge.h"
#include "lockstep/train/snapshot.h"
#include "lockstep/train/stored_run.h"

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

namespace {

// Where an earlier run stands.
struct EarlierRun {
  std::size_t finished = 0;                // stages that are not run again
  bool resumes = false;                    // the stage after them has begun
  std::filesystem::path weights = {};      // else: with which it begins, if any stage was finished
  std::optional<std::uint64_t> seed = {};  // of the earlier run
};

EarlierRun find_earlier(const std::vector<Stage>& stages) {
  std::optional<std::size_t> last;  // the last stage that the earlier run has started
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (std::filesystem::exists(checkpoints_of(stages[i]) / "last.pth")) last = i;
  }
  if (!last) return {};
  const TrainOptions& options = stages[*last].options;
  const auto folder = checkpoints_of(stages[*last]);
  const auto saved = checkpoint::load_by_name("last", folder);
  if (!is_resumable(saved.state)) {
    throw CheckpointError(
        "checkpoint {}: holds weights only, so the earlier run cannot be resumed; to train anew, "
        "start without resume, and to be able to resume, save with the mode 'full' of "
        "CheckpointCallback",
        saved.path.string());
  }
  const auto run = saved.state.get<StateDict>("run");
  const bool is_finished =
      options.num_steps
          ? run.get_or("update_step", run.get<std::int64_t>("batch_step")) >= *options.num_steps
          : run.get<std::int64_t>("epoch") >= options.num_epochs;
  EarlierRun earlier{.finished = *last, .resumes = true, .seed = snapshot_seed(saved.state)};
  if (!is_finished || *last + 1 == stages.size()) return earlier;
  // The weights with which the finished stage ended.
  const bool ends_with_best =
      options.load_best_on_end && std::filesystem::exists(folder / "best.pth");
  earlier.finished += 1;
  earlier.resumes = false;
  earlier.weights = ends_with_best ? folder / "best.pth" : saved.path;
  return earlier;
}

// Under a launcher all processes use the answer of rank 0: the others may not have its disk.
EarlierRun agreed_earlier(const std::vector<Stage>& stages, Engine* engine) {
  const bool is_launched = engine != nullptr && engine->restarts() == Engine::Restarts::kByLauncher;
  if (!is_launched || engine->workers() < 2) return find_earlier(stages);
  EarlierRun earlier;
  engine->run({.prepare = [] {},
               .work =
                   [&](comm::Communicator& comm) {
                     StateDict found;
                     if (comm.is_primary()) {
                       earlier = find_earlier(stages);
                       found = {{"finished", static_cast<std::int64_t>(earlier.finished)},
                                {"resumes", earlier.resumes},
                                {"weights", earlier.weights.string()}};
                       if (earlier.seed)
                         found.set("seed", static_cast<std::int64_t>(*earlier.seed));
                     }
                     found = broadcast(found, comm);
                     if (comm.is_primary()) return;
                     earlier.finished =
                         static_cast<std::size_t>(found.get<std::int64_t>("finished"));
                     earlier.resumes = found.get<bool>("resumes");
                     earlier.weights = found.get<std::string>("weights");
                     if (found.contains("seed")) {
                       earlier.seed = static_cast<std::uint64_t>(found.get<std::int64_t>("seed"));
                     }
                   }});
  return earlier;
}

}  // namespace

void resume_stages(std::vector<Stage>& stages, const std::string& checkpoint, Engine* engine) {
  share_models(stages);
  for (const Stage& stage : stages) checkpoints_of(stage);  // throws if one has no logdir
  const EarlierRun earlier = agreed_earlier(stages, engine);
  if (!earlier.seed) return;
  TrainOptions& options = stages[earlier.finished].options;
  // A seed of the earlier run's command line was the seed of all stages.
  const std::size_t last = earlier.resumes ? earlier.finished : earlier.finished - 1;
  if (!stages[last].options.seed) {
    for (std::size_t i = last; i < stages.size(); ++i) {
      auto& seed = stages[i].options.seed;
      if (!seed) seed = earlier.seed;
    }
  }
  if (earlier.resumes) {
    options.resume = checkpoint;  // if the stage had stopped early, it stops again immediately
  } else {
    options.weights_skip.clear();
    options.network_weights = {};
    options.weights = earlier.weights;
  }
  skip_stored_runs(earlier.finished);
  stages.erase(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(earlier.finished));
}

}  // namespace lockstep
