#include "lockstep/command/command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <torch/version.h>

#include "lockstep/base/color.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/command/subcommand.h"

namespace lockstep {
namespace {

const char* const kFooter = R"(
Examples:
  lockstep run -C examples/configs/mnist.yml --distributed
  lockstep run -C mnist.yml optimizer.lr=0.01 --logdir logs/slow
  lockstep tune -C mnist.yml --param 'optimizer.lr=loguniform(1e-4, 1e-1)' --logdir search
  lockstep evaluate logs/slow
  lockstep predict logs/slow --output predictions.npy
  lockstep export logs/slow --output model.onnx
  lockstep launch --nproc-per-node 2 ./program
  lockstep create -n turbulence
  lockstep doctor

Exit codes: 0 done, 1 failed, 2 wrong usage or config, 3 another process of the run failed.
`launch` returns the exit code of the program that failed first.)";

// The arguments, with "-C=file" replaced by "-Cfile", so that the value of a short option may also
// follow an equals sign. The arguments of `launch` are not changed, because they belong to another
// program.
std::vector<std::string> spelled_out(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  if (words.size() > 1 && words[1] == "launch") return words;
  for (std::string& word : words) {
    const bool is_short = word.size() > 3 && word[0] == '-' && word[1] != '-' && word[2] == '=';
    if (is_short) word.erase(2, 1);
  }
  return words;
}

int report(const std::string& message, int code) {
  std::cerr << colored_on(stderr, "lockstep:", TextColor::kRed) << ' ' << printable_lines(message)
            << '\n';
  return code;
}

// A command whose output could not be written has failed: on a full disk, the table that it should
// print is missing. `run`, `tune`, `predict` and `launch` are the exception, because they print
// progress and their results are in files. They keep their exit code and report the error.
int with_output_checked(int code, bool prints_progress) {
  errno = 0;
  std::cout.flush();
  const bool is_written = std::fflush(stdout) == 0 && std::cout.good() && std::ferror(stdout) == 0;
  if (is_written || code != kDone) return code;
  return report(fmt::format("cannot write to standard output: {}",
                            errno != 0 ? std::strerror(errno) : "some of it was lost"),
                prints_progress ? kDone : kFailed);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// Adds the program's own subcommands for --help and the list of names. Their arguments are not
// parsed here.
void add_own(CLI::App& app, const std::vector<OwnCommand>& own) {
  for (const OwnCommand& command : own) {
    const auto known = command_names(app);
    if (std::ranges::find(known, command.name) != known.end()) {
      throw ConfigError("command '{}': this name exists already; choose another", command.name);
    }
    app.add_subcommand(command.name, command.about);
  }
}

int run_command(int argc, char** argv, const std::vector<OwnCommand>& own) {
  CLI::App app("Distributed data-parallel training for LibTorch.", "lockstep");
  app.footer(kFooter);
  app.set_version_flag("--version",
                       std::string("lockstep " LOCKSTEP_VERSION ", LibTorch " TORCH_VERSION));
  app.require_subcommand(1);
  command::Action chosen;
  // The parser would take the words after "--" for positional arguments, but the program of
  // `launch` may use "--" itself.
  std::vector<std::string> after_dashes;
  if (argc > 1 && std::string_view(argv[1]) == "launch") {
    char** const dashes = std::find(argv, argv + argc, std::string_view("--"));
    after_dashes.assign(dashes, argv + argc);
    argc = static_cast<int>(dashes - argv);
  }
  command::add_run(app, chosen);
  command::add_tune(app, chosen);
  command::add_evaluate(app, chosen);
  command::add_predict(app, chosen);
  command::add_export(app, chosen);
  command::add_launch(app, chosen, after_dashes);
  command::add_create(app, chosen);
  command::add_targets(app, chosen);
  command::add_doctor(app, chosen);
  command::add_inspect(app, chosen);
  command::add_swa(app, chosen);
  command::add_completion(app, chosen);
  add_own(app, own);
  for (const OwnCommand& command : own) {
    if (argc > 1 && argv[1] == command.name) return command.run(argc - 1, argv + 1);
  }
  if (argc > 1 && argv[1][0] != '-') {
    const auto known = command_names(app);
    if (std::ranges::find(known, argv[1]) == known.end()) {
      return report(fmt::format("unknown command '{}'; {}", argv[1], suggest(argv[1], known)),
                    kBadUsage);
    }
  }
  try {
    // The parser takes the words in reverse order, without the program's name.
    auto words = spelled_out(argc, argv);
    std::reverse(words.begin(), words.end());
    if (!words.empty()) words.pop_back();
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kBadUsage;
  }
  try {
    return chosen();
  } catch (const ConfigError& error) {
    return report(error.what(), kBadUsage);
  } catch (const WorkerError& error) {
    return report(error.what(), kWorkerFailed);
  } catch (const std::exception& error) {
    return report(message_of(error), kFailed);
  }
}

}  // namespace

int command_main(int argc, char** argv, const std::vector<OwnCommand>& own) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const bool prints_progress =
      name == "run" || name == "tune" || name == "predict" || name == "launch";
  return with_output_checked(run_command(argc, argv, own), prints_progress);
}

}  // namespace lockstep
