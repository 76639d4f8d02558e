// lockstep targets: lists what a config can name.
#include "lockstep/recipe/targets.h"

#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/recipe/plugin.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::command {
namespace {

using config::FieldInfo;
using config::TargetInfo;

struct TargetsOptions {
  std::optional<std::string> name;
  std::vector<std::string> plugins;
};

void print_fields(const std::vector<FieldInfo>& fields) {
  std::size_t name_width = 0, type_width = 0;
  for (const FieldInfo& field : fields) {
    name_width = std::max(name_width, field.name.size());
    type_width = std::max(type_width, field.type.size());
  }
  for (const FieldInfo& field : fields) {
    std::string note = field.about;
    if (field.required) note += " (required)";
    if (!field.fallback.empty() && field.fallback != "[]" && field.fallback != "\"\"" &&
        field.fallback != "{}") {
      note += fmt::format(" (default: {})", field.fallback);
    }
    std::cout << fmt::format("  {:<{}}  {:<{}}  {}\n", field.name, name_width, field.type,
                             type_width, note);
  }
}

void print_all(const std::vector<TargetInfo>& infos) {
  std::size_t width = 0;
  for (const TargetInfo& info : infos) width = std::max(width, info.name.size());
  std::string kind;
  for (const TargetInfo& info : infos) {
    if (info.kind != kind) {
      std::cout << (kind.empty() ? "" : "\n") << info.kind << ":\n";
      kind = info.kind;
    }
    std::cout << fmt::format("  {:<{}}  {}\n", info.name, width, info.about);
  }
  std::cout
      << "\n`lockstep targets NAME` shows the options of one; `lockstep targets run` shows the "
         "keys of a config.\n";
}

void print_run() {
  std::cout << "Keys at the top level of a config:\n";
  print_fields(recipe::section_fields());
  std::cout << "\nOptions of train(), also at the top level:\n";
  std::vector<FieldInfo> fields;
  for (const auto& field : recipe::run_fields()) fields.push_back(field.info());
  print_fields(fields);
  std::cout << "\nOptions of a loader:\n";
  print_fields(recipe::loader_fields());
}

int show(const TargetsOptions& options) {
  for (const std::string& plugin : options.plugins) recipe::load_plugin(plugin);
  const auto infos = recipe::targets().all();
  if (!options.name) {
    print_all(infos);
    return kDone;
  }
  if (*options.name == "run" || *options.name == "loader") {
    print_run();
    return kDone;
  }
  bool found = false;
  std::vector<std::string> names = {"run", "loader"};
  for (const TargetInfo& info : infos) {
    names.push_back(info.name);
    if (info.name != *options.name && info.kind != *options.name) continue;
    std::cout << fmt::format("{}{} ({}): {}\n", found ? "\n" : "", info.name, info.kind,
                             info.about);
    if (info.fields.empty()) std::cout << "  no options\n";
    print_fields(info.fields);
    found = true;
  }
  if (!found) {
    throw ConfigError("unknown target '{}'; {}", *options.name, suggest(*options.name, names));
  }
  return kDone;
}

}  // namespace

void add_targets(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("targets", "List what a config can name, with options");
  command->footer(R"(
Examples:
  lockstep targets                all targets
  lockstep targets optimizer      the options of every optimizer
  lockstep targets Conv2d         the options of one target
  lockstep targets run            the keys of a config)");
  auto options = std::make_shared<TargetsOptions>();
  command->add_option("name", options->name, "A target, a kind of targets, or run");
  command->add_option("--plugin", options->plugins, "A library with your own targets")
      ->allow_extra_args(false);
  command->callback([options, &chosen] { chosen = [options] { return show(*options); }; });
}

}  // namespace lockstep::command
