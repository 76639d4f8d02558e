// lockstep swa: averages the weights of several checkpoints.
#include <iostream>
#include <set>

#include <CLI/CLI.hpp>
#include <glob.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/average.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/state/hash.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;

struct SwaOptions {
  std::vector<std::string> models;
  std::optional<std::string> logdir;
  std::string output = "swa.pth";
};

// The files that the pattern stands for, sorted.
std::vector<fs::path> expand(const std::string& pattern) {
  glob_t found{};
  const int result = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (result == GLOB_NOMATCH || paths.empty()) {
    throw ConfigError("{}: there is no such file", pattern);
  }
  if (result != 0) throw Error("{}: the search for files failed", pattern);
  return paths;
}

std::vector<fs::path> files_of(const SwaOptions& options) {
  std::vector<fs::path> files;
  for (const std::string& model : options.models) {
    const fs::path pattern = options.logdir ? fs::path(*options.logdir) / model : fs::path(model);
    for (fs::path& path : expand(pattern.string())) files.push_back(std::move(path));
  }
  std::error_code error;
  for (const fs::path& path : files) {
    if (fs::equivalent(path, options.output, error)) {
      throw ConfigError("{}: is both an input and the output; choose another --output",
                        path.string());
    }
  }
  return files;
}

// Each set of weights counts once: best.pth is another name of an epoch's checkpoint, and last.pth
// a copy.
int average(const SwaOptions& options) {
  checkpoint::WeightAverage average;
  std::vector<fs::path> counted;
  std::set<std::string> seen;
  StateDict documents;
  for (const fs::path& path : files_of(options)) {
    const checkpoint::Content content = checkpoint::read(path);
    const StateDict weights = checkpoint::weights_in(content, path);
    if (!seen.insert(content_hash(weights)).second) {
      std::cout << fmt::format("{}: same weights as another file, counted once\n", path.string());
      continue;
    }
    average.add(weights, path);
    if (counted.empty()) documents = content.state.get_or<StateDict>("documents", {});
    counted.push_back(path);
  }
  StateDict averaged{{"model_state_dict", average.mean()}};
  if (documents.size() > 0) averaged.set("documents", std::move(documents));
  checkpoint::save(options.output, averaged);
  std::cout << fmt::format("{}: the mean of {} checkpoint{}:\n", options.output, counted.size(),
                           counted.size() == 1 ? "" : "s");
  for (const fs::path& path : counted) std::cout << "  " << path.string() << '\n';
  return kDone;
}

}  // namespace

void add_swa(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("swa", "Average the weights of checkpoints");
  command->footer(R"(
Examples:
  lockstep swa -m "logs/checkpoints/epoch.*.pth" -o swa.pth
  lockstep swa --logdir logs -m "checkpoints/*.pth")");
  auto options = std::make_shared<SwaOptions>();
  command->add_option("-m,--models", options->models, "Checkpoints: paths or patterns")->required();
  command->add_option("--logdir", options->logdir, "Folder that the checkpoints are in");
  command->add_option("-o,--output,--output-path", options->output, "File to write")
      ->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return average(*options); }; });
}

}  // namespace lockstep::command
