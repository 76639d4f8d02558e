// lockstep swa: the mean of several checkpoints' weights.
#include <iostream>

#include <CLI/CLI.hpp>
#include <glob.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/average.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"

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
  if (result != 0) throw Error("{}: cannot be looked for", pattern);
  return paths;
}

int average(const SwaOptions& options) {
  std::vector<fs::path> paths;
  for (const std::string& model : options.models) {
    const fs::path pattern = options.logdir ? fs::path(*options.logdir) / model : fs::path(model);
    for (fs::path& path : expand(pattern.string())) {
      // best.pth is another name of one of them: it would count twice.
      std::error_code error;
      const bool known = std::ranges::any_of(
          paths, [&](const fs::path& other) { return fs::equivalent(path, other, error); });
      if (!known) paths.push_back(std::move(path));
    }
  }
  const StateDict weights = checkpoint::average_weights(paths);
  checkpoint::save(options.output, StateDict{{"model_state_dict", weights}});
  std::cout << fmt::format("{}: the mean of {} checkpoints:\n", options.output, paths.size());
  for (const fs::path& path : paths) std::cout << "  " << path.string() << '\n';
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
  command->add_option("--logdir", options->logdir, "Folder that they are in");
  command->add_option("-o,--output,--output-path", options->output, "File to write")
      ->capture_default_str();
  command->callback([options, &chosen] { chosen = [options] { return average(*options); }; });
}

}  // namespace lockstep::command
