// lockstep tune: searches values of a config.
#include <algorithm>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/command/command.h"
#include "lockstep/command/document.h"
#include "lockstep/command/search_space.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/command/train_document.h"
#include "lockstep/command/trial.h"
#include "lockstep/config/fields.h"
#include "lockstep/config/override.h"
#include "lockstep/config/yaml.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/run_series.h"
#include "lockstep/log/folder_lock.h"
#include "lockstep/process/environment.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/train/snapshot.h"

namespace lockstep::command {

enum class SearchMethod { kRandom, kGrid };

}  // namespace lockstep::command

namespace lockstep::config {

template <>
struct EnumNames<command::SearchMethod> {
  static constexpr std::pair<command::SearchMethod, const char*> names[] = {
      {command::SearchMethod::kRandom, "random"}, {command::SearchMethod::kGrid, "grid"}};
};

}  // namespace lockstep::config

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;
using config::Node;

// How to search: the section `tune` of a config, or the command line.
struct TuneSettings {
  SearchMethod method = SearchMethod::kRandom;
  std::optional<std::int64_t> trials;
  std::uint64_t seed = 1;
  std::optional<std::string> metric;
  std::optional<bool> minimize;
  bool early_stop = true;
  std::int64_t warmup_trials = MedianRule().warmup_trials;
  std::int64_t warmup_epochs = MedianRule().warmup_epochs;
};

const std::vector<config::Field<TuneSettings>>& tune_fields() {
  using T = TuneSettings;
  static const std::vector<config::Field<T>> fields = {
      {"method", &T::method, "random: values by chance; grid: all combinations"},
      {"trials", &T::trials, "at most; default: 20, or all combinations of a grid"},
      {"seed", &T::seed, "of the values; the seed of the runs is that of the config"},
      {"metric", &T::metric, "of valid_loader; default: valid_metric"},
      {"minimize", &T::minimize, "whether a smaller metric is better"},
      {"early_stop", &T::early_stop, "stops trials that are worse than the median of the others"},
      {"warmup_trials", &T::warmup_trials, "so many trials are over before one is stopped"},
      {"warmup_epochs", &T::warmup_epochs, "so many epochs of a trial before it is stopped"}};
  return fields;
}

struct TuneOptions {
  std::vector<std::string> configs, words, overrides, plugins, parameters;
  std::optional<std::string> logdir, method, metric;
  std::optional<std::int64_t> trials, seed, workers, shards, epochs, warmup_trials, warmup_epochs;
  CLI::Option *minimize = nullptr, *early_stop = nullptr;
  bool minimize_value = true, early_stop_value = true;
  bool distributed = false;
  bool verbose = false;
};

// A search, resolved: what is searched, how, and where its files are.
struct Search {
  TuneSettings settings;
  SearchSpace space;
  Node document;  // the config, without the section and without a logdir
  fs::path folder;
  std::string metric;  // "valid/loss"
  std::int64_t trials = 0;
  bool verbose = false;
};

// The words that are configs, and those that are overrides.
void load_document(const TuneOptions& options, Node& document) {
  std::vector<std::string> configs, overrides;
  for (const auto* const list : {&options.configs, &options.words}) {
    for (const std::string& word : *list) {
      std::error_code too_long;  // then it is no file
      const bool is_file = !config::is_override(word) || fs::exists(word, too_long);
      (is_file ? configs : overrides).push_back(word);
    }
  }
  if (configs.empty()) throw ConfigError("-C: expected a config, got only overrides");
  document.set_place({.source = configs.front()});
  merge_configs(configs, document);
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  apply_overrides(overrides, document);
  if (options.epochs) config::set_at(document, "num_epochs", number(*options.epochs));
  apply_workers(
      {.workers = options.workers, .shards = options.shards, .distributed = options.distributed},
      document);
  add_plugins(options.plugins, document);
}

// The command line has priority over the section.
TuneSettings read_settings(const TuneOptions& options, Node section) {
  const auto set = [&](const char* key, const auto& value, const auto& as_node) {
    if (value) config::set_at(section, key, as_node(*value));
  };
  const auto text = [](const std::string& value) { return Node::text(value); };
  set("method", options.method, text);
  set("metric", options.metric, text);
  for (const auto& [key, value] :
       {std::pair("trials", options.trials), std::pair("seed", options.seed),
        std::pair("warmup_trials", options.warmup_trials),
        std::pair("warmup_epochs", options.warmup_epochs)}) {
    set(key, value, number);
  }
  if (options.minimize->count() > 0)
    config::set_at(section, "minimize", flag(options.minimize_value));
  if (options.early_stop->count() > 0) {
    config::set_at(section, "early_stop", flag(options.early_stop_value));
  }
  const TuneSettings settings = config::read_fields(section, tune_fields(), {"params"});
  const auto check = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw ConfigError("tune: {}: expected at least {}, got {}", name, least, value);
  };
  check("trials", settings.trials.value_or(1), 1);
  check("warmup_trials", settings.warmup_trials, 1);
  check("warmup_epochs", settings.warmup_epochs, 1);
  return settings;
}

Dimension dimension_of(const std::string& path, const Node& range) {
  if (range.is_list()) return {path, range.items()};
  if (!range.is_scalar()) range.fail("expected a range or a list, got {}", range.describe());
  try {
    return {path, range.text()};
  } catch (const config::LocatedError&) {
    throw;
  } catch (const ConfigError& error) {
    range.fail("{}", error.what());
  }
}

SearchSpace read_space(const std::vector<std::string>& parameters, const Node& section) {
  SearchSpace space;
  std::vector<std::string> given;
  for (const std::string& parameter : parameters) {
    const auto equals = parameter.find('=');
    if (!config::is_override(parameter)) {
      throw ConfigError("--param: expected 'path=range', got '{}'", parameter);
    }
    given.push_back(parameter.substr(0, equals));
    space.add({given.back(), parameter.substr(equals + 1)});
  }
  if (const Node* const params = section.find("params"); params != nullptr && !params->is_null()) {
    if (!params->is_map()) params->fail("expected a mapping, got {}", params->describe());
    for (const auto& [path, range] : params->entries()) {
      if (std::ranges::find(given, path) == given.end()) space.add(dimension_of(path, range));
    }
  }
  if (space.empty()) {
    throw ConfigError(
        "tune: there is nothing to search; give --param 'optimizer.lr=loguniform(1e-4, 1e-1)', or "
        "the section tune/params of the config");
  }
  return space;
}

// Takes the folder of the search out of the document.
fs::path take_folder(const TuneOptions& options, Node& document) {
  std::optional<std::string> folder = options.logdir;
  const Node* const logdir = document.find("logdir");
  if (!folder && logdir != nullptr && !logdir->is_null()) folder = config::read_text(*logdir);
  if (!folder) throw ConfigError("tune: expected --logdir, the folder for all trials");
  document.erase("logdir");
  return *folder;
}

// Sets what decides the best epoch, and returns its name.
std::string set_objective(const TuneSettings& settings, Node& document) {
  const auto text_at = [&](const char* key) {
    const Node* const node = document.find(key);
    return node != nullptr && !node->is_null() ? config::read_text(*node) : std::string();
  };
  if (settings.metric) config::set_at(document, "valid_metric", Node::text(*settings.metric));
  if (settings.minimize) {
    config::set_at(document, "minimize_valid_metric", flag(*settings.minimize));
  }
  const Node* const loaders = document.find("loaders");
  if (text_at("valid_loader").empty()) {
    if (loaders == nullptr || !loaders->contains("valid")) {
      throw ConfigError(
          "tune: expected valid_loader in the config: trials are compared by its metric");
    }
    config::set_at(document, "valid_loader", Node::text("valid"));
  }
  const std::string metric = text_at("valid_metric");
  return text_at("valid_loader") + "/" + (metric.empty() ? "loss" : metric);
}

Search resolve(const TuneOptions& options) {
  const auto place = process::find_place(process::current_environment());
  if (place && place->topology.world_size > 1) {
    throw ConfigError(
        "tune: expected one process, got one of {} that a launcher started; use --workers",
        place->topology.world_size);
  }
  Search search{.document = Node::map(), .verbose = options.verbose};
  load_document(options, search.document);
  const Node* const found = search.document.find("tune");
  const Node section = found != nullptr && !found->is_null() ? *found : Node::map();
  search.document.erase("tune");
  if (search.document.contains("stages")) {
    search.document.find("stages")->fail("tune needs a config without stages");
  }
  search.settings = read_settings(options, section);
  search.space = read_space(options.parameters, section);
  search.folder = take_folder(options, search.document);
  search.metric = set_objective(search.settings, search.document);
  const bool is_grid = search.settings.method == SearchMethod::kGrid;
  const std::int64_t most = is_grid ? search.space.grid_size() : 20;
  search.trials = search.settings.trials.value_or(most);
  if (is_grid) search.trials = std::min(search.trials, most);
  search.document.set_paths();
  return search;
}

// Everything that the trials depend on, but not their number.
Node description_of(const Search& search) {
  const TuneSettings& settings = search.settings;
  Node params = Node::map();
  for (const Dimension& dimension : search.space.dimensions()) {
    params.set(dimension.path(), Node::text(dimension.describe()));
  }
  Node rule;
  if (settings.early_stop) {
    rule = Node::map({{"warmup_trials", number(settings.warmup_trials)},
                      {"warmup_epochs", number(settings.warmup_epochs)}});
  }
  return Node::map(
      {{"params", params},
       {"method", Node::text(settings.method == SearchMethod::kGrid ? "grid" : "random")},
       {"seed", number(static_cast<std::int64_t>(settings.seed))},
       {"early_stop", rule},
       {"config", search.document}});
}

// A folder has the trials of one search. Throws ConfigError if it has those of another one.
void claim_folder(const Search& search) {
  const fs::path path = search.folder / "tune.yml";
  const Node description = description_of(search);
  if (!fs::exists(path)) return write_file_atomically(path, config::to_yaml(description));
  const Node before = config::load_yaml(path);
  for (const auto& [key, value] : description.entries()) {
    const Node* const old = before.find(key);
    if (old != nullptr && config::to_yaml(*old) == config::to_yaml(value)) continue;
    throw ConfigError(
        "{}: this folder has another search, with another '{}'; give another --logdir, or repeat "
        "the command that began it (the number of trials may change)",
        path.string(), key);
  }
}

struct TrialEnd {
  Trial trial;
  std::exception_ptr mistake = {};  // a ConfigError: the config, or these values of it, are wrong
};

// Whether a trial that is not over can be resumed. If it saves weights only (CheckpointCallback:
// {mode: model}), or has saved nothing yet, it begins anew.
bool can_go_on(const fs::path& folder) {
  const fs::path checkpoints = checkpoint::folder_in(folder);
  return fs::exists(checkpoints / "last.pth") &&
         is_resumable(checkpoint::load_by_name("last", checkpoints).state);
}

// The config of a trial, and the values in it that are searched.
struct TrialDocument {
  Node document;
  std::vector<std::pair<std::string, std::string>> shown = {};  // by path
};

TrialDocument document_of(const Search& search, std::int64_t number) {
  const TuneSettings& settings = search.settings;
  const TrialValues values = settings.method == SearchMethod::kGrid
                                 ? search.space.grid_point(number - 1)
                                 : search.space.sample(settings.seed, number);
  TrialDocument trial{.document = search.document};
  for (const auto& [path, value] : values) {
    config::set_at(trial.document, path, value);
    trial.shown.emplace_back(path, show_value(value));
  }
  recipe::spell_out(trial.document);
  const fs::path folder = search.folder / trial_name(number);
  config::set_at(trial.document, "logdir", Node::text(folder.string()));
  trial.document.set_paths();
  return trial;
}

// The first two trials that are not over, or as many as there are.
std::vector<std::int64_t> next_trials(const Search& search) {
  std::vector<std::int64_t> next;
  for (std::int64_t number = 1; number <= search.trials && next.size() < 2; ++number) {
    if (!read_trial(search.folder / trial_name(number))) next.push_back(number);
  }
  return next;
}

// Nothing if the values of the trial are wrong: the trial itself says so.
std::optional<PlannedRun> planned_trial(const Search& search, std::int64_t number) {
  try {
    return planned_run(*recipe::read_engine(document_of(search, number).document));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// The first trial would start CUDA in this process, and all others would fail: they could not fork
// workers that use GPUs. A launcher is no remedy, because tune is one process.
void check_engines(const Search& search) {
  if (gpu_count() == 0) return;
  std::vector<PlannedRun> runs;
  for (const std::int64_t number : next_trials(search)) {
    if (const auto run = planned_trial(search, number)) runs.push_back(*run);
  }
  if (!refused_run(runs)) return;
  throw ConfigError(
      "tune: expected one worker for each trial on a GPU, got several: the first trial starts CUDA "
      "in this process, and then no workers can be forked that use GPUs; leave out --workers and "
      "ddp, or train on the CPU (device: cpu of the engine, or CUDA_VISIBLE_DEVICES=-1)");
}

// Trains one trial, or goes on with it.
TrialEnd run_trial(const Search& search, std::int64_t number, const std::vector<Trial>& before) {
  const TuneSettings& settings = search.settings;
  auto [document, shown] = document_of(search, number);
  const fs::path folder = search.folder / trial_name(number);

  std::vector<std::string> words;
  for (const auto& [path, value] : shown) words.push_back(path + "=" + value);
  std::cout << fmt::format("Trial {} of {}: {}", number, search.trials, join(words, ", "))
            << std::endl;
  std::optional<MedianRule> rule;
  if (settings.early_stop) {
    rule = MedianRule{.warmup_trials = settings.warmup_trials,
                      .warmup_epochs = settings.warmup_epochs};
  }
  const auto observer = std::make_shared<TrialCallback>(rule, before);
  Trial trial;
  std::exception_ptr mistake;
  try {
    PrepareOptions prepare;
    if (can_go_on(folder)) prepare.autoresume = "last";
    PreparedRun run = prepare_run(document, prepare);
    TrainOptions& options = run.recipe.stages.front().options;
    options.callbacks.add(observer);
    options.console = search.verbose;
    const TrainResult result = train(run);
    trial = observer->trial();
    trial.weights_hash = result.weights_hash;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) mistake = std::current_exception();
    trial = observer->trial();
    trial.status = Trial::Status::kFailed;
    trial.best_epoch = 0;
    trial.error = message_of(error);
  }
  trial.number = number;
  trial.values = std::move(shown);
  return {std::move(trial), mistake};
}

// Decides whether a ConfigError is a mistake in the config, which would end every trial, or in the
// values of one trial: if the first trials all have one, the search ends with the first error.
class FirstMistakes {
 public:
  explicit FirstMistakes(std::int64_t trials) : most_(std::min<std::int64_t>(3, trials)) {}

  // Trials with a mistake are written when another trial has had none.
  void note(const Search& search, TrialEnd end) {
    if (end.mistake && !has_trained_) {
      if (!first_) first_ = end.mistake;
      unwritten_.push_back(std::move(end.trial));
      if (static_cast<std::int64_t>(unwritten_.size()) == most_) std::rethrow_exception(first_);
      return;
    }
    has_trained_ = true;
    unwritten_.push_back(std::move(end.trial));
    for (const Trial& trial : std::exchange(unwritten_, {})) {
      write_trial(search.folder / trial_name(trial.number), trial);
    }
  }

 private:
  std::int64_t most_;
  bool has_trained_ = false;
  std::exception_ptr first_;
  std::vector<Trial> unwritten_;
};

std::string outcome(const Trial& trial, const std::string& metric) {
  if (trial.status == Trial::Status::kFailed) return "failed: " + trial.error;
  if (trial.best_epoch == 0) return fmt::format("{}: no finite value", name_of(trial.status));
  return fmt::format("{}, {}: {} in epoch {}", name_of(trial.status), metric,
                     format_metric(trial.best_score), trial.best_epoch);
}

// results.csv, and best.yml with the config of the best trial.
void write_results(const Search& search, const std::vector<Trial>& trials) {
  write_file_atomically(search.folder / "results.csv", trials_as_csv(trials, search.metric));
  const Trial best = ranked(trials).front();
  if (best.best_epoch == 0) return;
  Node document = config::load_yaml(search.folder / trial_name(best.number) / "configs");
  document.erase("logdir");
  write_file_atomically(search.folder / "best.yml", config::to_yaml(document));
}

int tune(const TuneOptions& options) {
  const Search search = resolve(options);
  check_engines(search);
  make_directories(search.folder);
  const FolderLock lock(search.folder);
  claim_folder(search);
  std::vector<Trial> trials;
  FirstMistakes mistakes(search.trials);
  for (std::int64_t number = 1; number <= search.trials; ++number) {
    auto trial = read_trial(search.folder / trial_name(number));
    const bool is_old = trial.has_value();
    if (is_old) {
      mistakes.note(search, {*trial});
    } else {
      TrialEnd end = run_trial(search, number, trials);
      trial = end.trial;
      mistakes.note(search, std::move(end));
    }
    std::cout << fmt::format("Trial {} of {} {}{}", number, search.trials,
                             is_old ? "was done before: " : "", outcome(*trial, search.metric))
              << std::endl;
    trials.push_back(std::move(*trial));
    write_results(search, trials);
  }
  std::cout << '\n' << trial_table(trials, {.metric = search.metric});
  const Trial best = ranked(trials).front();
  if (best.best_epoch == 0) {
    throw Error("tune: no trial has a finite {}; see {}", search.metric,
                (search.folder / "results.csv").string());
  }
  std::cout << fmt::format("\nBest: trial {}, {}: {}. Its config: {}\n", best.number, search.metric,
                           format_metric(best.best_score), (search.folder / "best.yml").string());
  return kDone;
}

}  // namespace

void add_tune(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("tune", "Search values of a config");
  command->footer(R"(
A range is choice(a, b, …), uniform(low, high), loguniform(low, high), int(low, high) or
int(low, high, step). Ranges may also be in the section tune of the config. Each trial is a run in
<logdir>/trial.<number>. If the search is interrupted, the same command goes on with it.

Examples:
  lockstep tune -C mnist.yml --param 'optimizer.lr=loguniform(1e-4, 1e-1)' --logdir search
  lockstep tune -C mnist.yml --param 'optimizer.lr=choice(0.1, 0.01)' --method grid --logdir grid
  lockstep run -C search/best.yml --logdir logs/best)");
  auto options = std::make_shared<TuneOptions>();
  command->add_option("-C,--config,--configs", options->configs, "YAML or JSON files, or folders")
      ->required();
  command->add_option("overrides", options->words, "path=value, or further configs");
  command->add_option("--set", options->overrides, "path=value")->allow_extra_args(false);
  command->add_option("--param", options->parameters, "path=range: what is searched")
      ->allow_extra_args(false);
  command->add_option("--logdir", options->logdir, "Folder for all trials and results.csv");
  command->add_option("--trials", options->trials,
                      "How many; default: 20, or all combinations of a grid");
  command->add_option("--method", options->method, "random or grid");
  command->add_option("--metric", options->metric,
                      "Metric of valid_loader to compare trials by; default: valid_metric");
  options->minimize = command->add_flag("--minimize,!--maximize", options->minimize_value,
                                        "Whether a smaller metric is better, or a larger one");
  options->early_stop =
      command->add_flag("--early-stop,!--no-early-stop", options->early_stop_value,
                        "Stop trials that are worse than the median of the others, or none");
  command->add_option("--warmup-trials", options->warmup_trials,
                      "So many trials are over before one is stopped; default: 5");
  command->add_option("--warmup-epochs", options->warmup_epochs,
                      "So many epochs of a trial before it is stopped; default: 1");
  command->add_option("--search-seed", options->seed, "Of the values; default: 1");
  command->add_option("--num-epochs", options->epochs, "Number of epochs of each trial");
  command->add_flag("--distributed,--ddp", options->distributed,
                    "Train each trial with several workers");
  command->add_option("--workers", options->workers, "Number of workers; implies --distributed");
  command->add_option("--shards", options->shards, "Parts of every batch");
  command->add_option("--plugin", options->plugins, "A library with your own targets")
      ->allow_extra_args(false);
  command->add_flag("--verbose", options->verbose, "Show the lines of every epoch");
  command->callback([options, &chosen] { chosen = [options] { return tune(*options); }; });
}

}  // namespace lockstep::command
