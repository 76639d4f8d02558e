// lockstep create: makes a project that can be built, tested and trained without changes.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/command/command.h"
#include "lockstep/command/project.h"
#include "lockstep/command/subcommand.h"

namespace lockstep::command {
namespace {

struct CreateOptions {
  std::string name;
  bool backend = false;
};

int create(const CreateOptions& options) {
  const auto folder =
      create_project({.name = options.name, .with_backend = options.backend}).lexically_normal();
  std::cout << fmt::format(
      "Created {}/: {}\n\nNow:\n  cd {}\n  make train\n  make test\n", folder.string(),
      options.backend ? "a project with its training backend" : "a project", folder.string());
  return kDone;
}

}  // namespace

void add_create(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("create", "Start a project in a new folder");
  command->footer(R"(
Examples:
  lockstep create -n turbulence
  lockstep create -n turbulence --gtb     for 3-D fields, with the training backend as source)");
  auto options = std::make_shared<CreateOptions>();
  command
      ->add_option("-n,--name", options->name,
                   "Name of the project; the folder has the same name in lower case")
      ->required();
  command->add_flag("--gtb,--get-torch-backend,--get_torch_backend", options->backend,
                    "For 3-D fields in HDF5, with the training backend as source to customise");
  command->callback([options, &chosen] { chosen = [options] { return create(*options); }; });
}

}  // namespace lockstep::command
