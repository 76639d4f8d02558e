#include "lockstep/command/train_document.h"

#include <utility>

#include "lockstep/checkpoint/store.h"
#include "lockstep/command/document.h"
#include "lockstep/config/override.h"
#include "lockstep/config/value.h"
#include "lockstep/engine/engine.h"
#include "lockstep/process/environment.h"
#include "lockstep/recipe/fitted.h"
#include "lockstep/recipe/record.h"
#include "lockstep/runner/stages.h"
#include "lockstep/train/snapshot.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using config::Node;

std::optional<fs::path> logdir_of(const Node& document) {
  const Node* const logdir = document.find("logdir");
  if (logdir == nullptr || logdir->is_null()) return std::nullopt;
  return config::read_text(*logdir);
}

// The seed that the stage will use: a resumed run without a seed of its own keeps the checkpoint's.
// Only the rank that writes the config needs it, and the others may not have access to the file.
std::uint64_t seed_of(const Stage& stage) {
  const TrainOptions options = options_of(stage);
  if (options.seed) return *options.seed;
  if (!options.resume || !process::is_primary_process()) return 42;
  std::optional<fs::path> folder;
  if (options.logdir) folder = checkpoint::folder_in(*options.logdir);
  const StateDict state = checkpoint::load_by_name(*options.resume, folder).state;
  return state.contains("run") ? snapshot_seed(state) : 42;
}

void write_seed(const recipe::Recipe& recipe, Node& document) {
  const std::uint64_t seed = seed_of(recipe.stages.front());
  config::set_at(document, "seed", number(static_cast<std::int64_t>(seed)));
}

// Writes the shards into the document if the machine decided them. Results depend on them and on
// the seed, so the config gives the same results on another machine.
void write_shards(const recipe::Recipe& recipe, Node& document) {
  const TrainOptions& options = recipe.stages.front().options;
  const Engine& engine = *options.engine;
  const Node* const section = document.find("engine");
  if (section != nullptr && !section->is_null()) {
    if (engine.workers() > 1 || engine.shards() > 1) {
      config::set_at(document, "engine/shards", number(engine.shards()));
    }
  } else if (options.ddp) {
    config::set_at(document, "shards", number(engine.shards()));
  }
}

}  // namespace

PreparedRun prepare_run(Node document, const PrepareOptions& options) {
  PreparedRun run{.document = std::move(document), .recipe = {}};
  run.recipe = recipe::read_recipe(run.document);
  write_shards(run.recipe, run.document);
  if (options.autoresume) {
    resume_stages(run.recipe.stages, *options.autoresume,
                  run.recipe.stages.front().options.engine.get());
  }
  write_seed(run.recipe, run.document);
  recipe::record_fitted(run.recipe, run.document);
  return run;
}

TrainResult train(PreparedRun& run) {
  const auto documents = recipe::run_documents(run.document);
  for (recipe::Stage& stage : run.recipe.stages) stage.options.documents = documents;
  if (const auto logdir = logdir_of(run.document); logdir && !run.recipe.stages.empty()) {
    run.recipe.stages.front().options.callbacks.add(recipe::RecordCallback(*logdir, documents));
  }
  return recipe::run_recipe(run.recipe);
}

}  // namespace lockstep::command
