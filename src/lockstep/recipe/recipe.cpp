#include "lockstep/recipe/recipe.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <ATen/Context.h>
#include <torch/utils.h>

#include "lockstep/base/warn.h"
#include "lockstep/config/override.h"
#include "lockstep/config/registry.h"
#include "lockstep/config/yaml.h"
#include "lockstep/engine/devices.h"
#include "lockstep/recipe/dataset_tree.h"
#include "lockstep/recipe/fit.h"
#include "lockstep/recipe/fitted.h"
#include "lockstep/recipe/plugin.h"
#include "lockstep/recipe/same_samples.h"
#include "lockstep/recipe/sequential.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/recipe/values.h"
#include "lockstep/runner/self_supervised.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/train/mixed_precision.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/state.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;
using config::FieldInfo;
using config::Mistakes;
using config::Node;

// Keys that are the same for all stages, so a stage cannot set them.
const std::set<std::string> kCommonKeys = {"model",  "models", "runner",        "engine", "plugins",
                                           "stages", "args",   "seed",          "logdir", "workers",
                                           "shards", "ddp",    "deterministic", "tune"};

struct LoaderRecipe {
  Node dataset;
  data::LoaderOptions options;
  Node sampler;
  Node collate;
  bool allow_training_data = false;
  Node batch_transform;
};

const std::vector<config::Field<LoaderRecipe>>& loader_recipe_fields();

struct ReadLoaders {
  data::Loaders loaders;
  std::string fitted;  // a hash of the values that were measured in the training data
  std::vector<FittedDataset> datasets;
};

// Reads the parts of one document.
class Reader {
 public:
  explicit Reader(const Node& document) : document_(document) {}

  Recipe read();
  Evaluation read_evaluation(const EvaluationChoice& choice);
  EnginePtr read_engine();

 private:
  void load_plugins();
  void check_top_level();
  void check_overridden(const Node& stages, Mistakes& mistakes) const;
  std::vector<std::pair<std::string, Node>> stage_documents() const;
  void read_common(const Node& first_stage, Recipe& recipe);
  Stage read_stage(const std::string& name, const Node& node);
  ReadLoaders read_loaders(const Node& node);
  data::Loader read_loader(const Node& node);
  void check_train_classes(Node& loaders) const;
  void take_fitted(Node& loaders, const std::string& name) const;
  Callbacks read_callbacks(const Node& node) const;
  void read_models();
  Model read_model(const Node& node) const;
  void read_criterions(const Node& node, TrainOptions& options, Mistakes& mistakes) const;
  void read_optimizers(const Node& node, TrainOptions& options, Mistakes& mistakes) const;

  Node document_;
  RunnerPtr runner_;
  // Of a SupervisedRunner, or the input_key of a SelfSupervisedRunner. None if the runner is
  // another.
  std::optional<SupervisedKeys> keys_;
  Example example_;
  Model model_;          // one, or all networks together
  Named<Model> models_;  // if they were given by name
  EnginePtr engine_;
  MadeDatasets made_datasets_;
  std::vector<FittedDataset> fitted_;
  std::size_t num_stages_ = 1;
};

// A section of the document; nullptr if it is missing or null.
const Node* section(const Node& node, const char* name) {
  const Node* const found = node.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// Values by name. One that is null is left out, so that another config can remove it.
template <typename Make>
auto read_named(const Node& node, const char* kind, const Make& make)
    -> Named<decltype(make(node))> {
  if (!node.is_map() || node.entries().empty()) {
    node.fail("expected a mapping of names to {}, got {}", kind, node.describe());
  }
  Named<decltype(make(node))> found;
  Mistakes mistakes;
  for (const auto& [name, item] : node.entries()) {
    if (item.is_null()) continue;
    mistakes.collect([&, &key = name, &value = item] {
      if (key.empty()) value.fail("expected a name, got an empty one");
      found.set(key, make(value));
    });
  }
  mistakes.raise();
  return found;
}

Phases read_phases(const Node& node) {
  Phases phases;
  for (Phase& phase : config::Value<std::vector<Phase>>::read(node)) phases.add(std::move(phase));
  return phases;
}

// The tensor for which a model's first layer is made.
torch::Tensor first_input(const Batch& batch, const SupervisedKeys& keys, const Node& place) {
  const std::string& key = keys.input_keys.empty() ? keys.input_key : keys.input_keys.front();
  const bool is_other = batch.contains(key) && batch.find(key) == nullptr;
  return is_other ? torch::Tensor() : tensor_of(batch, key, place);
}

void Reader::load_plugins() {
  if (const Node* const plugins = section(document_, "plugins")) {
    for (const auto& path : config::Value<std::vector<fs::path>>::read(*plugins)) {
      try {
        load_plugin(path);
      } catch (const ConfigError& error) {
        config::fail_making(*plugins, {}, error.what());
      }
    }
  }
}

Recipe Reader::read() {
  lift_args(document_);
  load_plugins();
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
  recipe.fitted = fitted_;
  return recipe;
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
      if (!is_stage_name(name)) {
        stage.fail("expected a name that a folder can have, got '{}'", name);
      }
      config::check_keys(stage, known_keys(), mistakes);
      for (const auto& [key, value] : stage.entries()) {
        if (!kCommonKeys.contains(key)) continue;
        mistakes.add(value.where() + ": all stages have this in common: set it outside of stages");
      }
    }
    check_overridden(*stages, mistakes);
  }
  mistakes.raise();
}

// A value at the top level is never used if every stage sets its own. It must be valid
// nevertheless, and it must not come from the command line, because the user would expect it to
// have an effect.
void Reader::check_overridden(const Node& stages, Mistakes& mistakes) const {
  for (const auto& [key, value] : document_.entries()) {
    const bool unused = std::ranges::all_of(
        stages.entries(), [&](const auto& stage) { return stage.second.contains(key); });
    if (unused && value.place().source == config::kCommandLine) {
      mistakes.add(
          fmt::format("{}: has no effect, because every stage sets its own {}: set stages/{}/{}",
                      value.where(), key, stages.entries().front().first, key));
    }
  }
  mistakes.collect([&] {
    TrainOptions options;
    for (const auto& field : run_fields()) {
      const Node* const value = document_.find(field.info().name);
      if (value != nullptr) field.read(options, *value);
    }
    options.valid_metric.reset();  // a stage may set the valid_loader that it needs
    try {
      check_options(options);
    } catch (const config::LocatedError&) {
      throw;
    } catch (const ConfigError& error) {
      config::fail_making(document_, document_, error.what());
    }
  });
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
    runner_ =
        node != nullptr ? targets().runners.make(*node) : std::make_shared<SupervisedRunner>();
    if (const auto* const runner = dynamic_cast<SupervisedRunner*>(runner_.get())) {
      keys_ = runner->keys();
    }
    if (const auto* const runner = dynamic_cast<SelfSupervisedRunner*>(runner_.get())) {
      keys_ = SupervisedKeys{.input_key = runner->keys().input_key};
    }
    recipe.runner = runner_;
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
    const data::Loaders loaders = read_loaders(*node).loaders;
    const auto train = std::ranges::find_if(node->entries(), is_train_loader, &Node::Entry::first);
    const auto& [name, place] = train == node->entries().end() ? node->entries().front() : *train;
    const data::Loader& loader = loaders.at(name);
    example_.batch = some_samples(loader, 1, place);
    const auto classes = loader.dataset()->class_names();
    if (!classes.empty()) example_.classes = static_cast<std::int64_t>(classes.size());
    if (keys_) example_.input = first_input(example_.batch, *keys_, place);
    has_data = true;
  });
  if (has_data) {
    mistakes.collect([&] {
      manual_seed(seed);
      read_models();
    });
  }
  mistakes.raise();
}

void Reader::read_models() {
  const Node* const one = section(document_, "model");
  const Node* const several = section(document_, "models");
  if (one != nullptr && several != nullptr) {
    several->fail("expected model or models, got both");
  }
  if (one != nullptr) {
    model_ = read_model(*one);
    return;
  }
  if (several == nullptr) {
    document_.fail(
        "model is missing: a list of layers, or a _target_; models has several of them by name");
  }
  models_ = read_named(*several, "models", [this](const Node& node) { return read_model(node); });
  try {
    model_ = Model::combine(models_);
  } catch (const ConfigError& error) {
    config::fail_making(*several, {}, error.what());
  }
}

Model Reader::read_model(const Node& node) const {
  if (node.is_list()) return Model(make_sequential(node, example_));
  return targets().models.make(node, example_);
}

Stage Reader::read_stage(const std::string& name, const Node& node) {
  Mistakes mistakes;
  Stage stage{.name = num_stages_ > 1 ? name : "", .options = {}};
  std::vector<std::string> sections;
  for (const FieldInfo& info : section_fields()) sections.push_back(info.name);
  mistakes.collect([&] { stage.options = config::read_fields(node, run_fields(), sections); });
  TrainOptions& options = stage.options;
  options.models = models_;
  if (models_.empty()) options.model = model_;
  options.engine = engine_;
  std::string fitted;
  mistakes.collect([&] {
    const Node* const loaders = section(node, "loaders");
    if (loaders == nullptr) node.fail("loaders is missing: a mapping of names to loaders");
    const ReadLoaders read = read_loaders(*loaders);
    options.loaders = read.loaders;
    fitted = read.fitted;
    for (const FittedDataset& dataset : read.datasets) {
      fitted_.push_back({.stage = name, .loader = dataset.loader, .dataset = dataset.dataset});
    }
  });
  read_criterions(node, options, mistakes);
  if (keys_ && section(node, "criterion") == nullptr && section(node, "criterions") == nullptr) {
    mistakes.add(node.where() + ": criterion is missing: what the runner minimises");
  }
  read_optimizers(node, options, mistakes);
  if (const Node* const callbacks = section(node, "callbacks")) {
    mistakes.collect([&] { options.callbacks = read_callbacks(*callbacks); });
  }
  if (!fitted.empty()) options.callbacks.add(FittedDataCallback(fitted));
  if (const Node* const loggers = section(node, "loggers")) {
    mistakes.collect([&] {
      if (!loggers->is_list()) loggers->fail("expected a list, got {}", loggers->describe());
      for (const Node& logger : loggers->items()) {
        options.loggers.push_back(targets().loggers.make(logger));
      }
    });
  }
  mistakes.raise();
  // read_common() has reported what is wrong with them.
  if (!model_ || runner_ == nullptr) return stage;
  const TrainOptions resolved = options_of(stage);
  options.engine = check_stage({.node = node, .options = resolved, .runner = *runner_});
  // The engine has them now.
  options.workers.reset();
  options.shards.reset();
  options.dry_run = false;  // it is done
  return stage;
}

void Reader::read_criterions(const Node& node, TrainOptions& options, Mistakes& mistakes) const {
  const auto make = [](const Node& criterion) { return targets().criterions.make(criterion); };
  if (const Node* const one = section(node, "criterion")) {
    mistakes.collect([&] { options.criterion = make(*one); });
  }
  if (const Node* const several = section(node, "criterions")) {
    mistakes.collect([&] { options.criterions = read_named(*several, "criterions", make); });
  }
}

// The optimizers, their schedulers, and the phases that step them.
void Reader::read_optimizers(const Node& node, TrainOptions& options, Mistakes& mistakes) const {
  const Node* const one = section(node, "optimizer");
  const Node* const several = section(node, "optimizers");
  if (one == nullptr && several == nullptr) {
    mistakes.add(node.where() + ": optimizer is missing: what updates the weights");
  }
  const auto make = [](const Node& optimizer) { return targets().optimizers.make(optimizer); };
  if (one != nullptr) mistakes.collect([&] { options.optimizer = make(*one); });
  if (several != nullptr) {
    mistakes.collect([&] { options.optimizers = read_named(*several, "optimizers", make); });
  }
  const auto schedule = [](const Node& scheduler) { return targets().schedulers.make(scheduler); };
  if (const Node* const scheduler = section(node, "scheduler")) {
    mistakes.collect([&] { options.scheduler = schedule(*scheduler); });
  }
  if (const Node* const schedulers = section(node, "schedulers")) {
    mistakes.collect([&] { options.schedulers = read_named(*schedulers, "schedulers", schedule); });
  }
  if (const Node* const phases = section(node, "phases")) {
    mistakes.collect([&] { options.phases = read_phases(*phases); });
  }
}

// The loader that the choice means, by its name in the stage, which has loaders.
std::string chosen_loader(const Node& stage, const std::optional<std::string>& wanted) {
  const Node& loaders = *stage.find("loaders");
  const std::vector<std::string> names = loaders.keys();
  if (wanted && !loaders.contains(*wanted)) {
    throw ConfigError("loader '{}': the config has none of this name; {}", *wanted,
                      suggest(*wanted, names));
  }
  if (wanted) return *wanted;
  const Node* const valid = section(stage, "valid_loader");
  if (valid != nullptr && valid->is_scalar() && loaders.contains(valid->text())) {
    return valid->text();
  }
  if (loaders.contains("valid")) return "valid";
  if (names.size() == 1) return names.front();
  loaders.fail("there is no valid_loader and no loader 'valid'; choose one of {}",
               list_some(names));
}

// Gives the loader the values that the run has recorded in the options of its train loaders.
void Reader::take_fitted(Node& loaders, const std::string& name) const {
  FittedValues fitted;
  for (auto& [other, loader] : loaders.entries()) {
    Node* const dataset = loader.find("dataset");
    if (dataset != nullptr && is_train_loader(other)) fitted.add(other, *dataset, made_datasets_);
  }
  Node* const dataset = loaders.find(name)->find("dataset");
  if (dataset == nullptr) return;
  leave_out_augment(*dataset);
  if (!is_train_loader(name)) fitted.give_to(*dataset);
}

Evaluation Reader::read_evaluation(const EvaluationChoice& choice) {
  lift_args(document_);
  load_plugins();
  check_top_level();
  auto documents = stage_documents();
  auto stage = std::prev(documents.end());
  if (choice.stage) {
    stage = std::ranges::find(documents, *choice.stage, &std::pair<std::string, Node>::first);
    if (stage == documents.end()) {
      throw ConfigError("stage '{}': the config has none of this name", *choice.stage);
    }
  }
  Node& node = stage->second;
  Node* const loaders = node.find("loaders");
  if (loaders == nullptr || !loaders->is_map() || loaders->entries().empty()) {
    node.fail("loaders is missing: a mapping of names to loaders");
  }
  const std::string name = chosen_loader(node, choice.loader);
  take_fitted(*loaders, name);
  std::erase_if(loaders->entries(), [&](const auto& entry) { return entry.first != name; });
  Mistakes mistakes;
  Recipe common;
  mistakes.collect([&] { read_common(node, common); });
  TrainOptions options;
  std::vector<std::string> sections;
  for (const FieldInfo& info : section_fields()) sections.push_back(info.name);
  mistakes.collect([&] { options = config::read_fields(node, run_fields(), sections); });
  read_criterions(node, options, mistakes);
  if (const Node* const phases = section(node, "phases")) {
    mistakes.collect([&] { options.phases = read_phases(*phases); });
  }
  if (const Node* const callbacks = section(node, "callbacks")) {
    mistakes.collect([&] { options.callbacks = read_callbacks(*callbacks); });
  }
  mistakes.raise();
  options.engine = engine_;
  Evaluation evaluation{.runner = runner_,
                        .model = model_,
                        .models = models_,
                        .criterion = options.criterion,
                        .criterions = options.criterions,
                        .phases = options.phases,
                        .callbacks = {},
                        .loader_name = name,
                        .loader = read_loader(*loaders->find(name)),
                        .engine = resolve_engine(options),
                        .seed = options.seed.value_or(42),
                        .deterministic = common.deterministic};
  const auto is_set = [&](const char* key) { return section(node, key) != nullptr; };
  if (is_set("precision") || is_set("fp16") || is_set("amp")) {
    evaluation.precision = precision_of(options, evaluation.engine->device());
  }
  for (const CallbackPtr& callback : options.callbacks) {
    if (!callback->traits().needs_training) evaluation.callbacks.add(callback);
  }
  return evaluation;
}

EnginePtr Reader::read_engine() {
  lift_args(document_);
  load_plugins();
  std::vector<std::string> sections;
  for (const FieldInfo& info : section_fields()) sections.push_back(info.name);
  TrainOptions options = config::read_fields(document_, run_fields(), sections);
  if (const Node* const node = section(document_, "engine")) {
    options.engine = targets().engines.make(*node);
  }
  return resolve_engine(options);
}

// The numbers of classes must mean the same in all loaders. A loader may lack the last ones.
void check_classes(const Node& node, const data::Loaders& loaders) {
  const auto first_difference = [](const std::vector<std::string>& own,
                                   const std::vector<std::string>& trained) {
    const auto [at, other] = std::ranges::mismatch(own, trained);
    return static_cast<std::size_t>(at - own.begin());
  };
  Mistakes mistakes;
  for (const auto& [name, loader] : loaders) {
    const auto own = loader.dataset()->class_names();
    if (is_train_loader(name) || own.empty()) continue;
    std::optional<std::string> message;
    for (const auto& [train_name, train] : loaders) {
      const auto trained = train.dataset()->class_names();
      if (!is_train_loader(train_name) || trained.empty()) continue;
      const std::size_t at = first_difference(own, trained);
      if (at == own.size()) {
        message.reset();
        break;
      }
      if (message) continue;
      message = fmt::format(
          "{}: class {} is '{}', but {} in loader '{}'; give both the same classes in the same "
          "order",
          node.find(name)->find("dataset")->where(), at, own[at],
          at < trained.size() ? fmt::format("'{}'", trained[at]) : "there is none", train_name);
    }
    if (message) mistakes.add(*message);
  }
  mistakes.raise();
}

// A label must mean the same class in all train loaders of one model. A runner of a plugin may have
// a head for each of them.
void Reader::check_train_classes(Node& loaders) const {
  const bool is_one_head = dynamic_cast<const SupervisedRunner*>(runner_.get()) != nullptr;
  std::vector<Node*> datasets;
  for (auto& [name, loader] : loaders.entries()) {
    if (is_train_loader(name)) datasets.push_back(loader.find("dataset"));
  }
  Mistakes mistakes;
  for (std::size_t i = 1; i < datasets.size(); ++i) {
    const auto label = other_label(*datasets[i], *datasets[0], made_datasets_);
    if (!label) continue;
    const std::string message = datasets[i]->where() + ": " + *label;
    is_one_head ? mistakes.add(message) : warn_once(message);
  }
  mistakes.raise();
}

ReadLoaders Reader::read_loaders(const Node& node) {
  if (!node.is_map() || node.entries().empty()) {
    node.fail("expected a mapping of names to loaders, got {}", node.describe());
  }
  Node filled = node;
  FittedValues fitted;
  std::map<std::string, data::Loader> made;
  Mistakes mistakes;
  // Train loaders come first, because the others are read with the values that they measure.
  for (const bool is_train : {true, false}) {
    for (Node::Entry& entry : filled.entries()) {
      if (is_train_loader(entry.first) != is_train) continue;
      mistakes.collect([&] {
        Node* const dataset = entry.second.find("dataset");
        if (dataset != nullptr && !is_train) {
          leave_out_augment(*dataset);
          fitted.give_to(*dataset);
        }
        made.emplace(entry.first, read_loader(entry.second));
        if (dataset == nullptr || !is_train) return;
        check_joined(*dataset, made_datasets_);
        fitted.add(entry.first, *dataset, made_datasets_);
      });
    }
  }
  mistakes.raise();
  fitted.warn_about_differences();
  check_train_classes(filled);
  ReadLoaders read{.loaders = {}, .fitted = fitted.hash(), .datasets = {}};
  for (const auto& [name, loader] : node.entries()) read.loaders.set(name, made.at(name));
  check_training_data(filled, read.loaders, made_datasets_);
  check_classes(node, read.loaders);
  for (const auto& [name, loader] : node.entries()) {
    Node dataset = *loader.find("dataset");
    const bool is_train = is_train_loader(name);
    if (write_fitted(dataset, {.made = made_datasets_, .is_train = is_train})) {
      read.datasets.push_back({.stage = "", .loader = name, .dataset = std::move(dataset)});
    }
  }
  return read;
}

data::Loader Reader::read_loader(const Node& node) {
  if (!node.is_map()) node.fail("expected a mapping with a dataset, got {}", node.describe());
  LoaderRecipe read = config::read_fields(node, loader_recipe_fields());
  const data::DatasetPtr dataset = make_dataset(read.dataset);
  if (!read.sampler.is_null()) {
    const std::int64_t batch_size =
        read.options.global_batch_size.value_or(read.options.batch_size);
    read.options.sampler = targets().samplers.make(read.sampler, SampledData(dataset, batch_size));
  }
  if (!read.collate.is_null()) read.options.collate = targets().collates.make(read.collate);
  if (!read.batch_transform.is_null()) {
    read.options.batch_transform = config::Value<data::BatchTransform>::read(read.batch_transform);
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
  // In a mapping, each callback has a name, so that another config can change it.
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

const std::vector<config::Field<LoaderRecipe>>& loader_recipe_fields() {
  // Fields of `options`, which is a member of the recipe.
  static const std::vector<config::Field<LoaderRecipe>> fields = [] {
    using R = LoaderRecipe;
    std::vector<config::Field<R>> made;
    made.push_back(config::required("dataset", &R::dataset, "what it loads").named("dataset"));
    made.push_back(
        config::Field<R>("sampler", &R::sampler, "the order, instead of shuffle").named("sampler"));
    made.push_back(config::Field<R>("collate", &R::collate,
                                    "makes a batch of samples; default: the dataset does it")
                       .named("collate"));
    made.push_back({"allow_training_data", &R::allow_training_data,
                    "whether an evaluation may have the data set of a train loader"});
    made.push_back(
        config::Field<R>("batch_transform", &R::batch_transform,
                         "changes each batch, such as Mixup; a list: one after the other")
            .named("batch transform"));
    for (const auto& field : std::vector<config::Field<data::LoaderOptions>>{
             {"batch_size", &data::LoaderOptions::batch_size, "samples in one shard of a batch"},
             {"global_batch_size", &data::LoaderOptions::global_batch_size,
              "samples in a batch over all shards, instead of batch_size"},
             {"shuffle", &data::LoaderOptions::shuffle, "another order each epoch"},
             {"drop_last", &data::LoaderOptions::drop_last,
              "leave out a last batch that is not full"},
             {"max_batches", &data::LoaderOptions::max_batches, "at most, of an epoch"},
             {"seed", &data::LoaderOptions::seed,
              "of the shuffle and random transforms; default: the run's seed"},
             {"prefetch", &data::LoaderOptions::prefetch, "batches prepared ahead"},
             {"threads", &data::LoaderOptions::threads,
              "that read and change samples, in each worker"}}) {
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
      {"num_epochs", &T::num_epochs, "in total, including those before a resume"},
      {"num_steps", &T::num_steps, "updates in total, instead of num_epochs"},
      {"steps_per_epoch", &T::steps_per_epoch, "updates in an epoch; default: one pass"},
      {"valid_every", &T::valid_every, "evaluates in every n-th epoch, and in the last one"},
      {"limit_batches", &T::limit_batches, "of loaders, at most: {train: 10, valid: 0.1}"},
      {"seed", &T::seed, "of weights, order and random layers; default: 42"},
      {"logdir", &T::logdir, "logs, checkpoints, summary.json; none: no files"},
      {"resume", &T::resume, "a checkpoint's path, or last or best in logdir"},
      {"weights", &T::weights,
       "the model starts with these: a checkpoint, Python's state_dict, or safetensors"},
      {"weights_skip", &T::weights_skip,
       "names and patterns of weights that are not taken: [fc.*]"},
      {"network_weights", &T::network_weights, "files for some of several networks"},
      {"restore", &T::restore,
       "other parts of a checkpoint: {optimizer: PATH, scheduler: PATH, criterion: PATH}"},
      {"valid_loader", &T::valid_loader, "its metric decides which epoch is the best"},
      {"valid_metric", &T::valid_metric, "default: loss"},
      {"minimize_valid_metric", &T::minimize_valid_metric,
       "whether smaller is better; default: the metric's own direction"},
      {"verbose", &T::verbose, "a progress bar"},
      {"progress_bars", &T::progress_bars,
       "if verbose: one per pass over a loader, or one per run"},
      {"timeit", &T::timeit, "adds the time of data, model and batch to the metrics"},
      {"check", &T::check, "a short test run: 3 epochs of 3 batches"},
      {"overfit", &T::overfit, "each loader repeats its first batch"},
      {"dry_run", &T::dry_run, "tries a few samples before anything starts"},
      {"profile", &T::profile, "where the time goes: a table, and logdir/profile.json"},
      {"profile_operators", &T::profile_operators,
       "the time in each of LibTorch's operators: a table, and logdir/operators.txt"},
      {"load_best_on_end", &T::load_best_on_end, "the model ends as it was in its best epoch"},
      {"accumulation_steps", &T::accumulation_steps, "batches whose gradients make one update"},
      {"lr_base_batch_size", &T::lr_base_batch_size,
       "learning rates are for steps of so many samples, and are scaled to those of the run"},
      {"clip_grad_norm", &T::clip_grad_norm, "the largest norm of all gradients together"},
      {"clip_grad_value", &T::clip_grad_value, "the largest value of a gradient's element"},
      {"wire", &T::wire, "bf16: gradients are summed and sent in 2 bytes per number"},
      {"log_gradient_norm", &T::log_gradient_norm,
       "the metric gradient/norm, which clip_grad_norm adds, too"},
      {"terminate_on_nan", &T::terminate_on_nan, "a loss that is not finite ends the run"},
      {"precision", &T::precision, "of the forward pass and the loss"},
      {"fp16", &T::fp16, "the same as precision: fp16"},
      {"amp", &T::amp, "the device's own precision: fp16 on a GPU, bf16 on the CPU"},
      {"grad_scaler", &T::grad_scaler,
       "how the loss is scaled; default: with fp16 as PyTorch's GradScaler does it"},
      {"console", &T::console, "prints one line per loader and epoch"},
      {"log_batches", &T::log_batches,
       "also writes every batch's metrics to TensorBoard, CSV and MLflow"},
      {"ddp", &T::ddp, "train with several workers: one per core or GPU of this machine"},
      {"workers", &T::workers, "the number of workers, instead of one per core or GPU; needs ddp"},
      {"shards", &T::shards, "parts of every batch; results depend on it, not on the workers"},
      {"max_restarts", &T::max_restarts,
       "how many times workers are made anew after one was lost; needs workers"},
      {"min_workers", &T::min_workers, "go on with fewer workers, but not fewer than this"},
      {"hparams", &T::hparams, "logged with the run"},
  };
  return fields;
}

std::vector<FieldInfo> loader_fields() {
  std::vector<FieldInfo> infos;
  for (const auto& field : loader_recipe_fields()) infos.push_back(field.info());
  return infos;
}

const std::vector<FieldInfo>& section_fields() {
  static const std::vector<FieldInfo> fields = {
      about("model", "list of layer, or model", "what is trained"),
      about("models", "mapping of names to models", "several networks, instead of model"),
      about("criterion", "criterion", "what is minimised"),
      about("criterions", "mapping of names to criterions", "several, instead of criterion"),
      about("optimizer", "optimizer", "what updates the weights"),
      about("optimizers", "mapping of networks to optimizers",
            "instead of optimizer; a network without one is not trained"),
      about("scheduler", "scheduler", "what changes the learning rate"),
      about("schedulers", "mapping of optimizers to schedulers", "instead of scheduler"),
      about("phases", "list of phase", "of every step, each with its own loss; default: one"),
      about("loaders", "mapping of names to loaders", "the data for training and validation"),
      about("callbacks", "list of callback", "observe the run and may stop it"),
      about("loggers", "list of logger", "in addition to those that logdir adds"),
      about("runner", "runner", "what happens to a batch; default: SupervisedRunner"),
      about("engine", "engine", "where it runs; default: as ddp and workers say"),
      about("stages", "mapping of names to stages",
            "run one after another; each is merged over the rest"),
      about("plugins", "list of path", "libraries with your own targets"),
      about("tune", "mapping",
            "the values that `lockstep tune` searches; `lockstep run` ignores it"),
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

Evaluation read_evaluation(const Node& document, const EvaluationChoice& choice) {
  if (!document.is_map()) {
    document.fail("expected a mapping, got {}", document.describe());
  }
  return Reader(document).read_evaluation(choice);
}

EnginePtr read_engine(const Node& document) {
  return Reader(document).read_engine();
}

TrainResult run_recipe(const Recipe& recipe) {
  if (recipe.deterministic) at::globalContext().setDeterministicAlgorithms(true, false);
  return recipe.runner->train_stages(recipe.stages);
}

}  // namespace lockstep::recipe
