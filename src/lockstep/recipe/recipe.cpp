#include "lockstep/recipe/recipe.h"

#include <array>
#include <map>
#include <numeric>
#include <set>

#include <ATen/Context.h>
#include <torch/utils.h>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/config/yaml.h"
#include "lockstep/data/describe.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/recipe/plugin.h"
#include "lockstep/recipe/sequential.h"
#include "lockstep/recipe/values.h"
#include "lockstep/runner/builtin.h"
#include "lockstep/runner/supervised.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;
using config::FieldInfo;
using config::Mistakes;
using config::Node;

// What all stages have in common: a stage cannot say it.
const std::set<std::string> kCommonKeys = {"model",   "runner",  "engine", "plugins",
                                           "stages",  "args",    "seed",   "logdir",
                                           "workers", "shards",  "ddp",    "deterministic"};

struct LoaderRecipe {
  Node dataset;
  data::LoaderOptions options;
  Node sampler;
};

const std::vector<config::Field<LoaderRecipe>>& loader_fields();

// Reads the parts of one document.
class Reader {
 public:
  explicit Reader(const Node& document) : document_(document) {}

  Recipe read();

 private:
  void inline_args();
  void check_top_level();
  std::vector<std::pair<std::string, Node>> stage_documents() const;
  void read_common(const Node& first_stage, Recipe& recipe);
  Stage read_stage(const std::string& name, const Node& node);
  data::Loaders read_loaders(const Node& node);
  data::Loader read_loader(const Node& node);
  Callbacks read_callbacks(const Node& node) const;
  Model read_model(const Node& node) const;
  void check_fit(const Node& node, const TrainOptions& options) const;
  torch::Tensor some_targets(const data::Loaders& loaders) const;
  void check_run(const Node& node, const TrainOptions& options) const;

  Node document_;
  std::string input_key_;   // of a SupervisedRunner; "" where the runner is another
  std::string target_key_;  // likewise
  std::string loss_key_ = "loss";
  Example example_;
  Model model_;
  EnginePtr engine_;
  std::map<std::string, data::DatasetPtr> datasets_;  // by what the config says of them
  std::size_t num_stages_ = 1;
};

// A part of the document; nullptr where it is not there, or null.
const Node* section(const Node& node, const char* name) {
  const Node* const found = node.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

Recipe Reader::read() {
  inline_args();
  if (const Node* const plugins = section(document_, "plugins")) {
    for (const auto& path : config::Value<std::vector<fs::path>>::read(*plugins)) {
      try {
        load_plugin(path);
      } catch (const ConfigError& error) {
        config::fail_making(*plugins, {}, error.what());
      }
    }
  }
  check_top_level();
  Recipe recipe;
  const auto documents = stage_documents();
  num_stages_ = documents.size();
  Mistakes mistakes;
  mistakes.collect([&] { read_common(documents.front().second, recipe); });
  for (const auto& [name, node] : documents) {
    mistakes.collect([&] { recipe.stages.push_back(read_stage(name, node)); });
  }
  mistakes.raise();
  return recipe;
}

void Reader::inline_args() {
  const Node* const args = document_.find("args");
  if (args == nullptr) return;
  if (!args->is_map() && !args->is_null()) {
    args->fail("expected a mapping, got {}", args->describe());
  }
  const Node given = *args;
  document_.erase("args");
  for (const auto& [key, value] : given.entries()) {
    if (document_.contains(key)) value.fail("'{}' is given twice, also outside of args", key);
    document_.set(key, value);
  }
}

std::vector<std::string> known_keys() {
  std::vector<std::string> known;
  for (const auto& field : run_fields()) known.push_back(field.info().name);
  for (const auto& field : section_fields()) known.push_back(field.name);
  return known;
}

void Reader::check_top_level() {
  Mistakes mistakes;
  config::check_keys(document_, known_keys(), mistakes);
  if (const Node* const stages = section(document_, "stages")) {
    if (!stages->is_map() || stages->entries().empty()) {
      stages->fail("expected a mapping of names to stages, got {}", stages->describe());
    }
    for (const auto& [name, stage] : stages->entries()) {
      if (!stage.is_map() && !stage.is_null()) {
        stage.fail("expected a mapping, got {}", stage.describe());
      }
      if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
        stage.fail("expected a name that can be a folder's, got '{}'", name);
      }
      config::check_keys(stage, known_keys(), mistakes);
      for (const auto& [key, value] : stage.entries()) {
        if (!kCommonKeys.contains(key)) continue;
        mistakes.add(value.where() + ": all stages have this in common: say it outside of stages");
      }
    }
  }
  mistakes.raise();
}

std::vector<std::pair<std::string, Node>> Reader::stage_documents() const {
  Node base = document_;
  base.erase("stages");
  const Node* const stages = section(document_, "stages");
  if (stages == nullptr) return {{"", base}};
  std::vector<std::pair<std::string, Node>> documents;
  for (const auto& [name, stage] : stages->entries()) {
    Node laid_over = base;
    if (stage.is_map()) config::merge(laid_over, stage);
    documents.emplace_back(name, std::move(laid_over));
  }
  return documents;
}

void Reader::read_common(const Node& first_stage, Recipe& recipe) {
  Mistakes mistakes;
  if (const Node* const node = section(document_, "deterministic")) {
    mistakes.collect([&] { recipe.deterministic = config::read_bool(*node); });
  }
  mistakes.collect([&] {
    const Node* const node = section(document_, "runner");
    recipe.runner =
        node != nullptr ? targets().runners.make(*node) : std::make_shared<SupervisedRunner>();
    const Node none = Node::map();
    const Node options =
        node != nullptr ? config::target_of(*node, "runner", targets().runners.names()).options
                        : none;
    const auto key = [&](const char* name, const char* fallback) {
      const Node* const said = options.find(name);
      return said != nullptr ? said->text() : fallback;
    };
    if (dynamic_cast<SupervisedRunner*>(recipe.runner.get()) != nullptr) {
      input_key_ = key("input_key", "features");
      target_key_ = key("target_key", "targets");
      loss_key_ = key("loss_key", "loss");
    }
  });
  if (const Node* const node = section(document_, "engine")) {
    mistakes.collect([&] { engine_ = targets().engines.make(*node); });
  }
  std::uint64_t seed = 42;
  if (const Node* const node = section(document_, "seed")) {
    mistakes.collect([&] { seed = config::Value<std::uint64_t>::read(*node); });
  }
  bool has_data = false;
  mistakes.collect([&] {
    const Node* const node = section(first_stage, "loaders");
    if (node == nullptr) {
      first_stage.fail("loaders is missing: a mapping of names to loaders");
    }
    const data::Loaders loaders = read_loaders(*node);
    const data::Loader& loader = loaders.begin()->second;
    const std::array<std::int64_t, 1> first = {0};
    if (loader.dataset()->size() == 0) node->entries().front().second.fail("the data set is empty");
    example_.batch = loader.dataset()->gather(first, {});
    if (!input_key_.empty()) {
      if (!example_.batch.contains(input_key_)) {
        node->entries().front().second.fail("its batches have no '{}', which the runner needs; {}",
                                            input_key_,
                                            suggest(input_key_, example_.batch.keys()));
      }
      example_.input = example_.batch[input_key_];
    }
    has_data = true;
  });
  if (has_data) {
    mistakes.collect([&] {
      const Node* const node = section(document_, "model");
      if (node == nullptr) document_.fail("model is missing: a list of layers, or a _target_");
      torch::manual_seed(seed);
      model_ = read_model(*node);
    });
  }
  mistakes.raise();
}

Model Reader::read_model(const Node& node) const {
  if (node.is_list()) return Model(make_sequential(node, example_.input));
  return targets().models.make(node, example_);
}

Stage Reader::read_stage(const std::string& name, const Node& node) {
  Mistakes mistakes;
  Stage stage{.name = name, .options = {}};
  std::vector<std::string> sections;
  for (const FieldInfo& info : section_fields()) sections.push_back(info.name);
  mistakes.collect([&] {
    stage.options = config::read_fields(node, run_fields(), sections);
  });
  TrainOptions& options = stage.options;
  options.model = model_;
  options.engine = engine_;
  if (options.logdir && num_stages_ > 1) options.logdir = *options.logdir / name;
  mistakes.collect([&] {
    const Node* const loaders = section(node, "loaders");
    if (loaders == nullptr) node.fail("loaders is missing: a mapping of names to loaders");
    options.loaders = read_loaders(*loaders);
  });
  if (const Node* const criterion = section(node, "criterion")) {
    mistakes.collect([&] { options.criterion = targets().criterions.make(*criterion); });
  } else if (!input_key_.empty()) {
    mistakes.add(node.where() + ": criterion is missing: what the SupervisedRunner minimises");
  }
  mistakes.collect([&] {
    const Node* const optimizer = section(node, "optimizer");
    if (optimizer == nullptr) node.fail("optimizer is missing: what updates the weights");
    options.optimizer = targets().optimizers.make(*optimizer);
  });
  if (const Node* const scheduler = section(node, "scheduler")) {
    mistakes.collect([&] { options.scheduler = targets().schedulers.make(*scheduler); });
  }
  if (const Node* const callbacks = section(node, "callbacks")) {
    mistakes.collect([&] { options.callbacks = read_callbacks(*callbacks); });
  }
  if (const Node* const loggers = section(node, "loggers")) {
    mistakes.collect([&] {
      if (!loggers->is_list()) loggers->fail("expected a list, got {}", loggers->describe());
      for (const Node& logger : loggers->items()) {
        options.loggers.push_back(targets().loggers.make(logger));
      }
    });
  }
  mistakes.raise();
  if (!model_) return stage;  // what is wrong with it was told before
  try {
    check_options(options);
    check_loaders(options.loaders, options, engine_ != nullptr ? engine_->shards()
                                            : options.shards   ? *options.shards
                                                               : options.workers.value_or(1));
  } catch (const ConfigError& error) {
    config::fail_making(node, node, error.what());
  }
  check_fit(node, options);
  check_run(node, options);
  return stage;
}

data::Loaders Reader::read_loaders(const Node& node) {
  if (!node.is_map() || node.entries().empty()) {
    node.fail("expected a mapping of names to loaders, got {}", node.describe());
  }
  data::Loaders loaders;
  Mistakes mistakes;
  for (const auto& [name, loader] : node.entries()) {
    mistakes.collect([&] { loaders.set(name, read_loader(loader)); });
  }
  mistakes.raise();
  return loaders;
}

data::Loader Reader::read_loader(const Node& node) {
  if (!node.is_map()) node.fail("expected a mapping with a dataset, got {}", node.describe());
  LoaderRecipe read = config::read_fields(node, loader_fields());
  const std::string key = config::to_yaml(read.dataset);
  auto& dataset = datasets_[key];
  if (dataset == nullptr) dataset = targets().datasets.make(read.dataset);
  if (!read.sampler.is_null()) {
    read.options.sampler = targets().samplers.make(read.sampler, dataset->size());
  }
  try {
    return data::Loader(dataset, read.options);
  } catch (const ConfigError& error) {
    config::fail_making(node, node, error.what());
  }
}

Callbacks Reader::read_callbacks(const Node& node) const {
  Callbacks callbacks;
  Mistakes mistakes;
  const auto add = [&](const Node& item) {
    mistakes.collect([&] { callbacks.add(targets().callbacks.make(item)); });
  };
  // A mapping gives each a name, by which another config can change it.
  if (node.is_list()) {
    for (const Node& item : node.items()) add(item);
  } else if (node.is_map()) {
    for (const auto& [name, item] : node.entries()) {
      if (!item.is_null()) add(item);
    }
  } else {
    node.fail("expected a list of callbacks, or a mapping of names to them, got {}",
              node.describe());
  }
  mistakes.raise();
  return callbacks;
}

// LibTorch broadcasts what does not fit, and finds integers out in the first backward only.
void require_alike(const Node& criterion, const torch::Tensor& output, const torch::Tensor& target) {
  static const std::set<std::string> alike = {"MSELoss",   "L1Loss",  "SmoothL1Loss",
                                              "HuberLoss", "BCELoss", "BCEWithLogitsLoss"};
  const auto name = config::target_of(criterion, "criterion", targets().criterions.names()).name;
  if (!alike.contains(name)) return;
  if (output.sizes() != target.sizes() || !target.is_floating_point()) {
    throw ConfigError("{} expects floating-point targets of the output's shape", name);
  }
}

// A class that the model has no output for fails in the batch that has it, maybe hours later.
void require_classes(const Node& criterion, const torch::Tensor& output,
                     const torch::Tensor& classes) {
  const auto name = config::target_of(criterion, "criterion", targets().criterions.names()).name;
  const bool by_class = name == "CrossEntropyLoss" || name == "NLLLoss";
  if (!by_class || classes.scalar_type() != torch::kInt64 || output.dim() < 2) return;
  const auto largest = classes.max().item<std::int64_t>();
  if (largest >= output.size(1)) {
    throw ConfigError("{}: class {} is among the targets, but there are outputs for {} classes only",
                      name, largest, output.size(1));
  }
}

// Sends the example through model and criterion, as training will.
void Reader::check_fit(const Node& node, const TrainOptions& options) const {
  if (!example_.input.defined()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor output;
  model_.train(false);
  try {
    output = model_(example_.input);
  } catch (const std::exception& error) {
    config::fail_making(*document_.find("model"), {},
                        fmt::format("does not fit an input of {}: {}",
                                    data::describe(example_.input), error.what()));
  }
  model_.train(true);
  if (!options.criterion) return;
  if (!example_.batch.contains(target_key_)) {
    section(node, "loaders")->fail("its batches have no '{}', which the criterion needs; {}", target_key_,
                suggest(target_key_, example_.batch.keys()));
  }
  const torch::Tensor& target = example_.batch[target_key_];
  try {
    require_alike(*node.find("criterion"), output, target);
    options.criterion(output, target);
    require_classes(*node.find("criterion"), output, some_targets(options.loaders));
  } catch (const std::exception& error) {
    config::fail_making(*node.find("criterion"), {},
                        fmt::format("does not fit the model's output {} and the targets {}: {}",
                                    data::describe(output), data::describe(target), error.what()));
  }
}

// Those of the first samples of the first loader.
torch::Tensor Reader::some_targets(const data::Loaders& loaders) const {
  constexpr std::int64_t kSome = 1000;
  const auto& dataset = loaders.begin()->second.dataset();
  std::vector<std::int64_t> indices(
      static_cast<std::size_t>(std::min(kSome, dataset->size())));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset->gather(indices, {})[target_key_];
}

// Where a callback that does not fit the run stands in the config.
const Node& place_of(const CallbackPtr& callback, const TrainOptions& options, const Node& node) {
  const Node* const section = node.find("callbacks");
  if (section == nullptr) return node;
  std::size_t index = 0;
  for (const auto& given : options.callbacks) {
    if (given != callback) {
      ++index;
      continue;
    }
    if (section->is_list()) return section->items()[index];
    return *section;
  }
  return node;
}

// What the loop would find out: whether optimizer, scheduler, metrics and callbacks go together.
void Reader::check_run(const Node& node, const TrainOptions& options) const {
  // Of copies: the parameters themselves are not to be moved before the workers are there.
  NamedTensors copies;
  for (const auto& [name, parameter] : model_.parameters()) {
    copies.push_back({name, parameter.detach().clone().set_requires_grad(parameter.requires_grad())});
  }
  optim::FlatParameters parameters(copies);
  const auto located = [&](const Node& place, const auto& work) {
    try {
      work();
    } catch (const ConfigError& error) {
      config::fail_making(place, place, error.what());
    }
  };
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Scheduler> scheduler;
  located(*node.find("optimizer"), [&] { optimizer = options.optimizer.make(parameters); });
  if (options.scheduler) {
    located(*node.find("scheduler"), [&] {
      scheduler = options.scheduler.make(
          *optimizer, {.num_epochs = options.num_epochs, .steps_per_epoch = 1'000'000});
    });
  }

  State state;
  state.model = model_;
  state.criterion = options.criterion;
  state.optimizer = optimizer.get();
  state.scheduler = scheduler.get();
  state.loaders = options.loaders;
  state.logdir = options.logdir;
  Callbacks callbacks = options.callbacks;
  for (const auto& added : builtin_callbacks(options, callbacks)) callbacks.add(added);
  if (!input_key_.empty()) state.known_metrics = known_metrics(callbacks.sorted(), loss_key_);
  if (options.valid_loader) {
    state.selection.key = MetricKey{*options.valid_loader, options.valid_metric.value_or(loss_key_)};
    located(node, [&] { check_metric_key(state, *state.selection.key, "valid_metric"); });
  }
  for (const auto& callback : callbacks) {
    located(place_of(callback, options, node), [&] { callback->check(state); });
  }
  if (options.resume && !fs::exists(*options.resume) &&
      !(options.logdir &&
        fs::exists(checkpoint::folder_in(*options.logdir) / (*options.resume + ".pth")))) {
    node.find("resume")->fail("there is no such checkpoint: '{}'", *options.resume);
  }
}

const std::vector<config::Field<LoaderRecipe>>& loader_fields() {
  // Fields of the options inside the recipe.
  static const std::vector<config::Field<LoaderRecipe>> fields = [] {
    using R = LoaderRecipe;
    std::vector<config::Field<R>> made;
    made.push_back(config::required("dataset", &R::dataset, "what it loads"));
    made.push_back({"sampler", &R::sampler, "the order, instead of shuffle"});
    for (const auto& field : std::vector<config::Field<data::LoaderOptions>>{
             {"batch_size", &data::LoaderOptions::batch_size, "samples in a worker's batch"},
             {"shuffle", &data::LoaderOptions::shuffle, "another order each epoch"},
             {"drop_last", &data::LoaderOptions::drop_last, "leave out a last batch not full"},
             {"seed", &data::LoaderOptions::seed, "of the shuffle; default: the run's"},
             {"prefetch", &data::LoaderOptions::prefetch, "batches prepared ahead by a thread"}}) {
      made.push_back(field.inside(&R::options));
    }
    return made;
  }();
  return fields;
}

FieldInfo about(const char* name, const char* type, const char* text) {
  return {.name = name, .type = type, .fallback = "", .about = text};
}

}  // namespace

const std::vector<config::Field<TrainOptions>>& run_fields() {
  using T = TrainOptions;
  static const std::vector<config::Field<T>> fields = {
      {"num_epochs", &T::num_epochs, "altogether, those before a resume included"},
      {"seed", &T::seed, "of weights, order and random layers; default: 42"},
      {"logdir", &T::logdir, "logs, checkpoints, summary.json; none: no files"},
      {"resume", &T::resume, "a checkpoint's path, or last or best in logdir"},
      {"valid_loader", &T::valid_loader, "whose metric tells the best epoch"},
      {"valid_metric", &T::valid_metric, "default: loss"},
      {"minimize_valid_metric", &T::minimize_valid_metric, "whether smaller is better"},
      {"verbose", &T::verbose, "a progress bar"},
      {"timeit", &T::timeit, "time of data, model and batch among the metrics"},
      {"check", &T::check, "a quick look: 3 epochs of 3 batches"},
      {"overfit", &T::overfit, "each loader repeats its first batch"},
      {"profile", &T::profile, "where the time goes: a table, and logdir/profile.json"},
      {"load_best_on_end", &T::load_best_on_end, "the model ends as it was in its best epoch"},
      {"accumulation_steps", &T::accumulation_steps, "batches whose gradients make one update"},
      {"clip_grad_norm", &T::clip_grad_norm, "the largest norm of all gradients together"},
      {"clip_grad_value", &T::clip_grad_value, "the largest value of a gradient's element"},
      {"terminate_on_nan", &T::terminate_on_nan, "a loss that is not finite ends the run"},
      {"console", &T::console, "a line a loader and epoch"},
      {"log_batches", &T::log_batches, "TensorBoard gets every batch's metrics, too"},
      {"ddp", &T::ddp, "by several workers: every core or GPU of this machine"},
      {"workers", &T::workers, "how many instead; needs ddp"},
      {"shards", &T::shards, "parts of every batch; results depend on it, not on the workers"},
      {"hparams", &T::hparams, "logged with the run"},
  };
  return fields;
}

const std::vector<FieldInfo>& section_fields() {
  static const std::vector<FieldInfo> fields = {
      about("model", "list of layer, or model", "what is trained"),
      about("criterion", "criterion", "what is minimised"),
      about("optimizer", "optimizer", "what updates the weights"),
      about("scheduler", "scheduler", "what moves the learning rate"),
      about("loaders", "mapping of names to loaders", "what it is trained and tested on"),
      about("callbacks", "list of callback", "who looks on"),
      about("loggers", "list of logger", "beside those that logdir brings"),
      about("runner", "runner", "what happens to a batch; default: SupervisedRunner"),
      about("engine", "engine", "where it runs; default: what ddp and workers say"),
      about("stages", "mapping of names to stages", "one after another, laid over the rest"),
      about("plugins", "list of path", "libraries with targets of your own"),
      about("deterministic", "true or false", "refuse operations whose results may vary"),
  };
  return fields;
}

Recipe read_recipe(const Node& document) {
  if (!document.is_map()) {
    document.fail("expected a mapping, got {}", document.describe());
  }
  return Reader(document).read();
}

TrainResult run_recipe(const Recipe& recipe) {
  if (recipe.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  std::optional<TrainResult> result;
  for (const Stage& stage : recipe.stages) result = recipe.runner->train(stage.options);
  if (!result) throw ConfigError("the run is finished already: there is no stage left to train");
  return std::move(*result);
}

void autoresume(Recipe& recipe, const std::string& checkpoint) {
  for (auto stage = recipe.stages.begin(); stage != recipe.stages.end(); ++stage) {
    TrainOptions& options = stage->options;
    if (!options.logdir) throw ConfigError("autoresume: needs a logdir, where the earlier run is");
    const fs::path folder = checkpoint::folder_in(*options.logdir);
    if (!fs::exists(folder / "last.pth")) {
      recipe.stages.erase(recipe.stages.begin(), stage);
      return;
    }
    const auto last = checkpoint::load_by_name("last", folder);
    const auto epoch = last.state.get<StateDict>("run").get<std::int64_t>("epoch");
    const bool is_last_stage = std::next(stage) == recipe.stages.end();
    if (epoch < options.num_epochs || is_last_stage) {
      options.resume = checkpoint;
      recipe.stages.erase(recipe.stages.begin(), stage);
      return;
    }
    options.model.load_state(last.state.get<StateDict>("model_state_dict"));
  }
}

}  // namespace lockstep::recipe
