// lockstep completion: prints a script that completes the command line in a shell.
#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::command {
namespace {

std::string options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* const option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_fnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return join(names, " ");
}

// The script is made from the parser, so it always has all commands and options.
std::string bash_script(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string cases;
  for (const auto* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
    cases += fmt::format("    {}) options=\"{}\" ;;\n", command->get_name(), options_of(*command));
  }
  std::vector<std::string> targets = {"run", "loader"};
  for (const auto& info : recipe::targets().all()) {
    if (std::ranges::find(targets, info.kind) == targets.end()) targets.push_back(info.kind);
    targets.push_back(info.name);
  }
  return fmt::format(R"(# bash completion for lockstep: source <(lockstep completion bash)
_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} options=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if [ "$previous" = --autoresume ] || [ "$previous" = --checkpoint ]; then
    COMPREPLY=($(compgen -W "best last" -- "$current"))
  elif [ "$previous" = --format ]; then
    COMPREPLY=($(compgen -W "torchscript onnx safetensors pth" -- "$current"))
  elif [ "${{COMP_WORDS[1]}}" = targets ] && [[ "$current" != -* ]]; then
    COMPREPLY=($(compgen -W "{}" -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _lockstep lockstep
)",
                     join(commands, " "), cases, join(targets, " "));
}

}  // namespace

void add_completion(CLI::App& app, Action& chosen) {
  auto* const command =
      app.add_subcommand("completion", "Print a script that completes commands in your shell");
  command->footer("\nExamples:\n  source <(lockstep completion bash)");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  command->callback([&app, shell, &chosen] {
    chosen = [&app] {
      std::cout << bash_script(app);
      return kDone;
    };
  });
}

}  // namespace lockstep::command
