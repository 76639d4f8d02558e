#include "lockstep/command/saved_run.h"

#include <algorithm>
#include <charconv>

#include <ATen/Context.h>
#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/command/document.h"
#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "lockstep/process/environment.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/train/mixed_precision.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using config::Node;

// Where the files of a run are.
struct RunFiles {
  fs::path folder;      // of the run, or of one of its stages
  fs::path checkpoint;  // the file
};

std::optional<fs::path> config_in(const fs::path& folder) {
  const fs::path path = folder / "configs" / "config.yml";
  return fs::is_regular_file(path) ? std::optional(path) : std::nullopt;
}

// The folder of a run with several stages has one folder per stage. The last stage that has
// checkpoints has the weights that the run ended with.
fs::path folder_with_checkpoints(const fs::path& run) {
  if (fs::is_directory(checkpoint::folder_in(run))) return run;
  if (const auto path = config_in(run)) {
    const Node document = config::load_yaml(*path);
    const Node* const stages = document.find("stages");
    const auto names = stages != nullptr ? stages->keys() : std::vector<std::string>();
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      if (fs::is_directory(checkpoint::folder_in(run / *name))) return run / *name;
    }
  }
  throw ConfigError("{}: expected the folder of a run, but there are no checkpoints: no {}",
                    run.string(), checkpoint::folder_in(run).string());
}

// "epoch.7" is the file epoch.0007.pth.
std::string file_name(const std::string& name) {
  constexpr std::string_view kEpoch = "epoch.";
  std::int64_t epoch = 0;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kEpoch)) {
    const auto [rest, error] = std::from_chars(name.data() + kEpoch.size(), end, epoch);
    if (error == std::errc() && rest == end) return fmt::format("epoch.{:04}.pth", epoch);
  }
  return name + ".pth";
}

fs::path checkpoint_in(const fs::path& folder, const std::optional<std::string>& wanted) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".pth") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  if (names.empty()) throw ConfigError("{}: there are no checkpoints", folder.string());
  if (!wanted) {
    for (const char* const name : {"best.pth", "last.pth"}) {
      if (fs::is_regular_file(folder / name)) return folder / name;
    }
    throw ConfigError("{}: there is neither best.pth nor last.pth; choose with --checkpoint: {}",
                      folder.string(), list_some(names));
  }
  const fs::path path = folder / file_name(*wanted);
  if (fs::is_regular_file(path)) return path;
  throw ConfigError("--checkpoint: no '{}' in {}; {}", *wanted, folder.string(),
                    suggest(*wanted, names));
}

RunFiles find_run(const SavedRunOptions& options) {
  std::error_code ignored;
  if (fs::is_regular_file(options.run, ignored)) {
    if (options.checkpoint) {
      throw ConfigError("--checkpoint {}: {} is a checkpoint itself; pass the folder of the run",
                        *options.checkpoint, options.run);
    }
    const fs::path folder = fs::canonical(options.run).parent_path();
    const bool is_in_run = checkpoint::folder_in(folder.parent_path()) == folder;
    return {.folder = is_in_run ? folder.parent_path() : folder, .checkpoint = options.run};
  }
  if (!fs::is_directory(options.run, ignored)) {
    throw ConfigError("{}: expected the folder of a run or a checkpoint; there is no such file",
                      options.run);
  }
  const fs::path folder = folder_with_checkpoints(options.run);
  return {.folder = fs::canonical(folder),
          .checkpoint = checkpoint_in(checkpoint::folder_in(folder), options.checkpoint)};
}

// The stage whose folder it is.
std::optional<std::string> stage_of(const RunFiles& found, const Node& document) {
  const Node* const stages = document.find("stages");
  const std::string name = found.folder.filename().string();
  return stages != nullptr && stages->contains(name) ? std::optional(name) : std::nullopt;
}

// The config that the checkpoint was trained with. A checkpoint with weights only has none; then it
// is the one in the folder of the run. Without any, the document is empty.
Node config_of(const RunFiles& found, const StateDict& state) {
  const auto documents = state.get_or<StateDict>("documents", {});
  Node document = Node::map();
  if (documents.contains("config")) {
    document = config::parse_yaml(documents.get<std::string>("config"),
                                  found.checkpoint.string() + " (config)");
  } else if (const auto own = config_in(found.folder)) {
    document = config::load_yaml(*own);
  } else if (const auto of_all_stages = config_in(found.folder.parent_path())) {
    Node loaded = config::load_yaml(*of_all_stages);
    if (stage_of(found, loaded)) document = std::move(loaded);
  }
  recipe::spell_out(document);
  recipe::lift_args(document);
  return document;
}

// How the model was trained says nothing about the machine that evaluates it.
void forget_workers(Node& document) {
  for (const char* const key : {"ddp", "workers", "shards", "max_restarts", "min_workers"})
    document.erase(key);
  if (Node* const engine = document.find("engine"); engine != nullptr && engine->is_map()) {
    engine->erase("shards");
  }
}

Node document_of(const SavedRunOptions& options, const RunFiles& found, const StateDict& state) {
  Node document = config_of(found, state);
  if (document.entries().empty() && options.configs.empty()) {
    throw ConfigError(
        "{}: it has no config, because `lockstep run` did not write it; give the config with "
        "--config",
        found.checkpoint.string());
  }
  forget_workers(document);
  merge_configs(options.configs, document);
  apply_overrides(options.overrides, document);
  apply_workers({.workers = options.workers}, document);
  if (options.precision) apply_precision(*options.precision, document);
  add_plugins(options.plugins, document);
  return document;
}

}  // namespace

void add_run_options(CLI::App& command, SavedRunOptions& options) {
  command.add_option("run", options.run, "The folder of a run, or a checkpoint")->required();
  command.add_option("overrides", options.overrides, "path=value");
  command.add_option("--checkpoint", options.checkpoint,
                     "best, last or epoch.N; default: best, or else last");
  command.add_option(
      "--loader", options.loader,
      "A loader of the config; default: its valid_loader, else valid, else the only one");
  command.add_option("-C,--config", options.configs, "A config that is merged over the run's own")
      ->allow_extra_args(false);
  command.add_option("--plugin", options.plugins, "A library with your own targets")
      ->allow_extra_args(false);
}

void add_saved_run_options(CLI::App& command, SavedRunOptions& options) {
  add_run_options(command, options);
  command.add_option("--workers", options.workers, "Number of workers; default: one process");
  command.add_option("--precision", options.precision,
                     "fp32, bf16 or fp16; default: that of the run");
}

fs::path find_checkpoint(const SavedRunOptions& options) {
  return find_run(options).checkpoint;
}

SavedRun open_saved_run(const SavedRunOptions& options) {
  for (const std::string& argument : options.overrides) {
    if (config::is_override(argument)) continue;
    throw ConfigError("'{}': expected an override, path=value; another config needs --config",
                      argument);
  }
  const RunFiles found = find_run(options);
  const checkpoint::Content content = checkpoint::read(found.checkpoint);
  Node document = document_of(options, found, content.state);
  const auto place = process::find_place(process::current_environment());
  take_place(place, document);
  SavedRun run{.checkpoint = found.checkpoint,
               .evaluation = recipe::read_evaluation(
                   document, {.loader = options.loader, .stage = stage_of(found, document)}),
               .is_primary = !place || place->topology.rank == 0};
  reading<CheckpointError>({.path = found.checkpoint, .kind = "checkpoint"}, [&] {
    run.evaluation.model.load_state(checkpoint::weights_in(content, found.checkpoint));
  });
  if (!run.evaluation.precision && content.is_ours) {
    run.evaluation.precision = saved_precision(content.state);
  }
  if (run.evaluation.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  return run;
}

}  // namespace lockstep::command
