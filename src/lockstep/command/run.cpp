// lockstep run: trains a model from a config.
#include <ctime>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/document.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/command/train_document.h"
#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/forked_workers.h"
#include "lockstep/process/memory_file.h"
#include "lockstep/recipe/record.h"
#include "lockstep/state/hash.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using config::Node;

struct RunOptions {
  std::vector<std::string> configs;
  std::vector<std::string> overrides;
  std::vector<std::string> plugins;
  std::optional<std::string> logdir, baselogdir, resume, autoresume;
  std::optional<std::int64_t> seed, workers, shards, epochs, max_restarts;
  std::optional<std::string> precision;
  bool distributed = false;
  bool print_config = false;
  // Flags that change the config only if they were given.
  CLI::Option *verbose = nullptr, *timeit = nullptr, *check = nullptr, *overfit = nullptr,
              *deterministic = nullptr, *profile = nullptr, *fp16 = nullptr, *amp = nullptr;
  bool verbose_value = false, timeit_value = false, check_value = false, overfit_value = false,
       deterministic_value = false, profile_value = false, fp16_value = false, amp_value = false;
};

Node load_documents(const RunOptions& options) {
  Node document = Node::map();
  document.set_place({.source = options.configs.front()});
  merge_configs(options.configs, document);
  return document;
}

// Makes a new folder. Its name is the time in UTC and a hash of the config, as Catalyst names its
// folders. If the name is taken, a number is added. Only rank 0 writes to the run's folder, so the
// other ranks of a launcher make none.
fs::path new_folder(const fs::path& base, const Node& document) {
  if (process::current_environment().contains(process::MemoryFile::kVariable)) {
    throw ConfigError(
        "--baselogdir: `lockstep launch` may start this run again (--max-restarts, --nnodes "
        "MIN:MAX), and it would get another folder each time; expected --logdir");
  }
  const std::string hash = content_hash(StateDict{{"config", config::to_yaml(document)}});
  const std::string name =
      fmt::format("{:%y%m%d.%H%M%S}.{}", fmt::gmtime(std::time(nullptr)), hash.substr(0, 8));
  fs::path folder = base / name;
  if (!process::is_primary_process()) return folder;
  make_directories(base);
  for (int i = 2; !fs::create_directory(folder); ++i) folder = base / fmt::format("{}.{}", name, i);
  return folder;
}

// Writes the flags into the document, so that the recorded config is the one that was run.
void apply_flags(const RunOptions& options, Node& document) {
  apply_overrides(options.overrides, document);
  const auto set = [&](const char* key, Node value) {
    config::set_at(document, key, std::move(value));
  };
  const auto set_flag = [&](const CLI::Option* option, const char* key, bool value) {
    if (option->count() > 0) set(key, flag(value));
  };
  set_flag(options.verbose, "verbose", options.verbose_value);
  set_flag(options.timeit, "timeit", options.timeit_value);
  set_flag(options.check, "check", options.check_value);
  set_flag(options.overfit, "overfit", options.overfit_value);
  set_flag(options.profile, "profile", options.profile_value);
  set_flag(options.deterministic, "deterministic", options.deterministic_value);
  if (options.precision) apply_precision(*options.precision, document);
  set_flag(options.fp16, "fp16", options.fp16_value);
  set_flag(options.amp, "amp", options.amp_value);
  if (options.seed) set("seed", number(*options.seed));
  if (options.epochs) set("num_epochs", number(*options.epochs));
  if (options.resume) set("resume", Node::text(*options.resume));
  apply_workers({.workers = options.workers,
                 .shards = options.shards,
                 .distributed = options.distributed,
                 .max_restarts = options.max_restarts},
                document);
  add_plugins(options.plugins, document);
  if (options.logdir) set("logdir", Node::text(*options.logdir));
  if (options.baselogdir) {
    set("logdir", Node::text(new_folder(*options.baselogdir, document).string()));
  }
}

// Divides the words into configs and overrides. -C takes all words that follow it, so overrides may
// be among them. A file may have = in its name.
void sort_words(RunOptions& options, const std::vector<std::string>& words) {
  std::vector<std::string> configs;
  for (const auto* const list : {&std::as_const(options.configs), &words}) {
    for (const std::string& word : *list) {
      std::error_code too_long;  // then it is no file
      const bool is_file = !config::is_override(word) || fs::exists(word, too_long);
      (is_file ? configs : options.overrides).push_back(word);
    }
  }
  if (configs.empty()) throw ConfigError("-C: expected a config, got only overrides");
  options.configs = std::move(configs);
}

int run(const RunOptions& options) {
  Node document = load_documents(options);
  apply_flags(options, document);
  const auto place = process::find_place(process::current_environment());
  take_place(place, document);
  const Node* const stages = document.find("stages");
  if (options.resume && stages != nullptr && stages->entries().size() > 1) {
    throw ConfigError(
        "--resume needs a config with one stage, this one has {}; use --autoresume last instead",
        stages->entries().size());
  }
  PreparedRun prepared = prepare_run(std::move(document), {.autoresume = options.autoresume});
  if (options.print_config) {
    std::cout << recipe::resolved_config(prepared.document);
    return kDone;
  }
  process::end_on_failure(kWorkerFailed);
  train(prepared);
  return kDone;
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("run", "Train from a config");
  command->footer(R"(
Configs are merged in their order; values of later ones replace those of earlier ones. A folder
means the config.yml in it. Overrides, path=value, such as optimizer.lr=0.01 or
stages/first/num_epochs=3, are applied last.

Examples:
  lockstep run -C mnist.yml                         one process
  lockstep run -C mnist.yml --distributed           every core or GPU of this machine
  lockstep run -C base.yml big.yml --workers 4      big.yml merged over base.yml
  lockstep run -C mnist.yml optimizer.lr=0.01 --print-config
  lockstep run -C mnist.yml 'engine={DistributedDataParallelEngine: {backend: gloo}}' --workers 4
  lockstep run -C logs/configs --autoresume last    continue the run that logged to logs)");
  auto options = std::make_shared<RunOptions>();
  command->add_option("-C,--config,--configs", options->configs, "YAML or JSON files, or folders")
      ->required();
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("overrides", *words, "path=value, or further configs");
  command->add_option("--set", options->overrides, "path=value")->allow_extra_args(false);
  command->add_flag("--distributed,--ddp", options->distributed,
                    "Train with several workers: one per core or GPU of this machine");
  command->add_option("--workers", options->workers, "Number of workers; implies --distributed");
  command->add_option("--shards", options->shards,
                      "Parts of every batch; results depend on them, not on the workers");
  command->add_option("--max-restarts", options->max_restarts,
                      "How many times workers are made anew after one was lost; results stay the "
                      "same");
  auto* const logdir = command->add_option("--logdir", options->logdir,
                                           "Folder for logs, checkpoints and summary.json");
  auto* const baselogdir =
      command->add_option("--baselogdir", options->baselogdir, "Make a new logdir in this folder")
          ->excludes(logdir);
  auto* const resume = command->add_option("--resume", options->resume,
                                           "A checkpoint's path, or last or best in the logdir");
  auto* const autoresume = command->add_option(
      "--autoresume", options->autoresume,
      "Continue an earlier run in the logdir, if there is one, from its best or last checkpoint");
  autoresume->check(CLI::IsMember({"best", "last"}))->excludes(resume)->excludes(baselogdir);
  command->add_option("--seed", options->seed, "Of weights, order and random layers");
  command->add_option("--num-epochs", options->epochs, "Number of epochs in total");
  command->add_option("--plugin", options->plugins, "A library with your own targets")
      ->allow_extra_args(false);
  options->verbose = command->add_flag("--verbose,!--no-verbose", options->verbose_value,
                                       "A progress bar, or none");
  options->timeit = command->add_flag("--timeit,!--no-timeit", options->timeit_value,
                                      "Add the times of data, model and batch to the metrics");
  options->check = command->add_flag("--check,!--no-check", options->check_value,
                                     "A short test run: 3 epochs of 3 batches");
  options->overfit = command->add_flag("--overfit,!--no-overfit", options->overfit_value,
                                       "Each loader repeats its first batch");
  options->profile = command->add_flag("--profile,!--no-profile", options->profile_value,
                                       "Where the time goes: a table, and a trace in the logdir");
  options->deterministic =
      command->add_flag("--deterministic,!--no-deterministic", options->deterministic_value,
                        "Refuse operations whose results may vary");
  auto* const precision = command->add_option("--precision", options->precision,
                                              "fp32, bf16 or fp16, of the forward pass and loss");
  options->fp16 =
      command->add_flag("--fp16,!--no-fp16", options->fp16_value, "The same as --precision fp16");
  options->amp = command->add_flag("--amp,!--no-amp", options->amp_value,
                                   "The device's own precision: fp16 on a GPU, bf16 on the CPU");
  precision->excludes(options->fp16)->excludes(options->amp);
  command->add_flag("--print-config", options->print_config,
                    "Check the config, print what would be run, and stop");
  // Catalyst's way to override: --stages/train/num_epochs=3:int
  command->allow_extras();
  command->callback([command, options, words, &chosen] {
    for (const std::string& extra : command->remaining()) {
      const std::string argument =
          extra.substr(std::min(extra.find_first_not_of('-'), extra.size()));
      if (!extra.starts_with("--") || !config::is_override(argument) ||
          argument.find('/') > argument.find('=')) {
        std::vector<std::string> known;
        for (const auto* const option : command->get_options()) {
          for (const auto& name : option->get_lnames()) known.push_back("--" + name);
        }
        throw CLI::ExtrasError("run", {extra + ": " + suggest(extra, known)});
      }
      options->overrides.push_back(argument);
    }
    chosen = [options, words] {
      sort_words(*options, *words);
      return run(*options);
    };
  });
}

}  // namespace lockstep::command
