#include "lockstep/recipe/fitted.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "lockstep/base/warn.h"
#include "lockstep/config/fields.h"
#include "lockstep/config/registry.h"
#include "lockstep/config/yaml.h"
#include "lockstep/data/scaling.h"
#include "lockstep/recipe/scaling.h"
#include "lockstep/source/csv.h"

namespace lockstep::config {

data::TableColumn Value<data::TableColumn>::read(const Node& node) {
  using C = data::TableColumn;
  static const std::vector<Field<C>> fields = {
      required("name", &C::name, "of the column"),
      required("type", &C::type, "of its cells"),
      {"mean", &C::mean, "of numbers"},
      {"std", &C::std, "of numbers"},
      {"categories", &C::categories, "in the order of their codes"},
      {"most_frequent", &C::most_frequent, "of the categories"}};
  return read_fields(node, fields);
}

data::TableSchema Value<data::TableSchema>::read(const Node& node) {
  using S = data::TableSchema;
  static const std::vector<Field<S>> fields = {
      required("features", &S::features, "columns"),
      required("targets", &S::targets, "columns"),
      required("missing", &S::missing, "what becomes of cells without a value"),
      required("missing_value", &S::missing_value, "instead of them"),
      required("missing_values", &S::missing_values, "cells that mean no value"),
      required("unknown", &S::unknown, "what becomes of a category that is not known"),
      required("normalize", &S::normalize, "features are (x - mean) / std"),
      required("one_hot", &S::one_hot, "a category is one feature per category")};
  if (!node.is_map()) {
    const std::filesystem::path path = read_text(node);
    if (!std::filesystem::exists(path)) {
      node.fail(
          "there is no {}; the data set with save_schema writes it, so its loader must come first",
          path.string());
    }
  }
  try {
    if (!node.is_map()) return data::read_table_schema(read_text(node));
    S schema = read_fields(node, fields);
    data::check_table_schema(schema);
    return schema;
  } catch (const DataError& error) {
    node.fail("{}", error.what());
  }
}

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

using config::Node;

Node plain(std::string text) {
  return Node::scalar(std::move(text), true);
}

Node text_list(const std::vector<std::string>& texts) {
  Node list = Node::list();
  for (const std::string& text : texts) list.items().push_back(Node::text(text));
  return list;
}

template <typename E>
Node name_node(E value) {
  return plain(config::Value<E>::show(value));
}

Node bool_node(bool value) {
  return plain(value ? "true" : "false");
}

Node column_list(const std::vector<data::TableColumn>& columns) {
  Node list = Node::list();
  for (const data::TableColumn& column : columns) {
    Node node = Node::map({{"name", Node::text(column.name)}, {"type", name_node(column.type)}});
    if (column.type == data::ColumnType::kNumber) {
      node.set("mean", plain(config::show_double(column.mean)));
      node.set("std", plain(config::show_double(column.std)));
    } else {
      node.set("categories", text_list(column.categories));
      node.set("most_frequent", Node::text(column.most_frequent));
    }
    list.items().push_back(std::move(node));
  }
  return list;
}

// An option whose value is measured in the data if it is not set.
struct Kind {
  const char* option;
  std::string type;  // another data set may have an option of this name that means something else
  const char* same_option = option;  // another one that sets the same value
  // An option for the file that a value goes to which is too long for a config; "" if there is
  // none.
  const char* file_option = "";
  // Nothing if the data set has no such value.
  std::function<std::optional<Node>(const data::Dataset&)> measure;
  // Whether the other options say that the value must not be taken from the training data.
  std::function<bool(const DatasetNode&)> is_own = [](const DatasetNode&) { return false; };
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {.option = "scaling",
       .type = config::Value<data::Scaling>::type(),
       .measure = [](const data::Dataset& dataset) -> std::optional<Node> {
         const data::Scaling scaling = data::scaling_of(dataset);
         if (scaling.is_none()) return std::nullopt;
         return to_node(scaling);
       },
       .is_own =
           [](const DatasetNode& source) {
             const Node* const normalize = source.find("normalize");
             return normalize != nullptr &&
                    normalize->text() == data::name_of(data::Normalization::kNone);
           }},
      {.option = "schema",
       .type = config::Value<data::TableSchema>::type(),
       .file_option = "save_schema",
       .measure = [](const data::Dataset& dataset) -> std::optional<Node> {
         const auto* const table = dynamic_cast<const data::TableDataset*>(&dataset);
         if (table == nullptr) return std::nullopt;
         return to_node(table->schema());
       }},
      {.option = "train_classes",
       .type = config::Value<std::vector<std::string>>::type(),
       .same_option = "classes",
       .measure = [](const data::Dataset& dataset) -> std::optional<Node> {
         const auto names = dataset.class_names();
         if (names.empty()) return std::nullopt;
         return text_list(names);
       }}};
  return all;
}

const Kind& classes_kind() {
  return kinds().back();
}

// The value as the config has it, or nullptr.
const Node* written_value(const DatasetNode& source, const Kind& kind) {
  for (const char* const option : {kind.option, kind.same_option}) {
    const Node* const value = source.find(option);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

bool has_option(const DatasetNode& source, const Kind& kind) {
  const auto& datasets = targets().datasets;
  if (source.options == nullptr || !datasets.contains(source.target)) return false;
  return std::ranges::any_of(datasets.info(source.target).fields, [&](const auto& field) {
    return field.name == kind.option && field.type == kind.type;
  });
}

std::vector<DatasetNode> sources_with(Node& dataset, const Kind& kind) {
  std::vector<DatasetNode> sources = sources_of(dataset);
  std::erase_if(sources, [&](const DatasetNode& source) { return !has_option(source, kind); });
  return sources;
}

// The source without options that do not change what is measured. Parts of a field have the
// statistics of its training part.
std::string measured_data(const DatasetNode& source) {
  Node options = *source.options;
  for (const char* const key : {"part", "transform", "target_transform", "augment"}) {
    options.erase(key);
  }
  // The values are compared by themselves.
  for (const Kind& kind : kinds()) {
    if (has_option(source, kind)) options.erase(kind.option);
  }
  std::ranges::sort(options.entries(), {}, &Node::Entry::first);
  return source.target + "\n" + config::to_yaml(options);
}

// The schema without numbers that have no effect on samples.
data::TableSchema what_matters(data::TableSchema schema) {
  const bool fills_in = schema.missing == data::Missing::kMean;
  const auto forget_statistics = [](data::TableColumn& column) {
    column.mean = 0;
    column.std = 1;
  };
  const auto forget_most_frequent = [](data::TableColumn& column) {
    if (!column.categories.empty()) column.most_frequent = column.categories.front();
  };
  if (!fills_in && !schema.normalize) std::ranges::for_each(schema.features, forget_statistics);
  if (!fills_in) std::ranges::for_each(schema.features, forget_most_frequent);
  std::ranges::for_each(schema.targets, forget_statistics);
  std::ranges::for_each(schema.targets, forget_most_frequent);
  return schema;
}

// The schema without all that has no effect on the meaning of numbers.
data::TableSchema meaning(data::TableSchema schema) {
  const data::TableSchema plain;
  schema.missing = data::Missing::kError;
  schema.missing_value = plain.missing_value;
  schema.missing_values = plain.missing_values;
  schema.unknown = data::UnknownCategory::kError;
  return what_matters(std::move(schema));
}

std::vector<std::string> sorted_names(const std::vector<data::TableColumn>& columns) {
  std::vector<std::string> names;
  for (const data::TableColumn& column : columns) names.push_back(column.name);
  std::ranges::sort(names);
  return names;
}

// Files may have other names for the same columns, but the same names must be at the same places.
bool mean_the_same(const data::TableSchema& a, const data::TableSchema& b) {
  data::TableSchema one = meaning(a), two = meaning(b);
  const auto forget_names = [](std::vector<data::TableColumn>& of,
                               std::vector<data::TableColumn>& other) {
    if (sorted_names(of) == sorted_names(other)) return;
    for (auto* const columns : {&of, &other}) {
      for (data::TableColumn& column : *columns) column.name = "";
    }
  };
  forget_names(one.features, two.features);
  forget_names(one.targets, two.targets);
  return one == two;
}

bool mean_the_same(const Kind& kind, const Node& a, const Node& b) {
  using Schema = config::Value<data::TableSchema>;
  if (kind.type == Schema::type()) return mean_the_same(Schema::read(a), Schema::read(b));
  return config::to_yaml(a) == config::to_yaml(b);
}

// Two values with the same text make the same samples.
std::string text_of(const Kind& kind, const Node& value) {
  using Schema = config::Value<data::TableSchema>;
  if (kind.type != Schema::type() || !value.is_map()) return config::to_yaml(value);
  return config::to_yaml(to_node(what_matters(Schema::read(value))));
}

// Whether a config that has this value can be read again. It is also in every checkpoint.
bool fits_config(const Node& value) {
  const std::string text = config::to_yaml(value);
  const auto nodes = static_cast<std::size_t>(std::ranges::count(text, '\n'));  // one per line
  return text.size() < config::kLargestFile / 4 && nodes < config::kMostNodes / 4;
}

void warn_too_long(const DatasetNode& source, const Kind& kind) {
  const std::string advice =
      *kind.file_option != '\0'
          ? fmt::format("set {} to a file, and the run refers to it", kind.file_option)
          : fmt::format("set {} in the config", kind.same_option);
  warn_once(
      fmt::format("{}: {} is too long for the config of the run, so an evaluation would measure "
                  "its own; {}",
                  source.node->where(), kind.option, advice));
}

std::optional<Node> measured_value(const DatasetNode& source, const Kind& kind,
                                   const MadeDatasets& made) {
  const data::DatasetPtr found = made.find(*source.node);
  return found == nullptr ? std::nullopt : kind.measure(*found);
}

// Two data sets that follow each other have the same keys, so sources at the same places are the
// same inputs. Classes are not compared here: something may change the labels afterwards.
void check_values(Node& dataset, Node& other, const MadeDatasets& made) {
  for (const Kind& kind : kinds()) {
    if (&kind == &classes_kind()) continue;
    const auto own = sources_with(dataset, kind), others = sources_with(other, kind);
    for (std::size_t i = 0; i < own.size() && own.size() == others.size(); ++i) {
      const auto one = measured_value(own[i], kind, made);
      const auto two = measured_value(others[i], kind, made);
      if (!one || !two || mean_the_same(kind, *one, *two)) continue;
      own[i].node->fail(
          "its {} differs from that of {}, because each is measured in its own data, so the same "
          "number would mean different things; set {} of both to the same value",
          kind.option, others[i].node->path(), kind.option);
    }
  }
}

std::vector<std::string> label_names(Node& dataset, const MadeDatasets& made) {
  const data::DatasetPtr found = made.find(dataset);
  const bool has_other_labels = std::ranges::any_of(
      sources_of(dataset),
      [](const DatasetNode& source) { return source.find("target_transform") != nullptr; });
  return found == nullptr || has_other_labels ? std::vector<std::string>() : found->class_names();
}

// The part of the document with this key, which may be under `args`; nullptr if there is none.
Node* part_of(Node& document, const char* key) {
  if (Node* const found = document.find(key)) return found;
  Node* const args = document.find("args");
  return args == nullptr ? nullptr : args->find(key);
}

// A mapping below `node`, which is made if there is none.
Node& mapping_in(Node& node, const std::string& key) {
  Node* const found = node.find(key);
  return found != nullptr && found->is_map() ? *found : node.set(key, Node::map());
}

// The mapping which, merged over `base`, gives `whole`. Each data set in it has its target, which
// tells it from a target that is written as the only key of a mapping.
Node overlay(const Node& base, const Node& whole) {
  const Node* const before = base.find(config::kTargetKey);
  const Node* const after = whole.find(config::kTargetKey);
  const bool same_target = before != nullptr && after != nullptr && before->text() == after->text();
  if (!base.is_map() || !whole.is_map() || (after != nullptr && !same_target)) return whole;
  Node over = Node::map();
  for (const auto& [key, value] : whole.entries()) {
    const Node* const old = base.find(key);
    const bool is_equal = old != nullptr && config::to_yaml(*old) == config::to_yaml(value);
    if (is_equal && key != config::kTargetKey) continue;
    over.set(key, old == nullptr ? value : overlay(*old, value));
  }
  return over;
}

// A stage writes into its own part: what it would write into the part that all stages share would
// be a setting for the others.
void record_in_stage(Node& document, const FittedDataset& fitted) {
  Node* const shared = part_of(document, "loaders");
  const Node* const loader = shared == nullptr ? nullptr : shared->find(fitted.loader);
  const Node* const dataset = loader == nullptr ? nullptr : loader->find("dataset");
  Node own = dataset == nullptr ? fitted.dataset : overlay(*dataset, fitted.dataset);
  Node& stage = mapping_in(*part_of(document, "stages"), fitted.stage);
  mapping_in(mapping_in(stage, "loaders"), fitted.loader).set("dataset", std::move(own));
}

}  // namespace

Node to_node(const data::TableSchema& schema) {
  return Node::map({{"features", column_list(schema.features)},
                    {"targets", column_list(schema.targets)},
                    {"missing", name_node(schema.missing)},
                    {"missing_value", plain(config::show_double(schema.missing_value))},
                    {"missing_values", text_list(schema.missing_values)},
                    {"unknown", name_node(schema.unknown)},
                    {"normalize", bool_node(schema.normalize)},
                    {"one_hot", bool_node(schema.one_hot)}});
}

void FittedValues::add(const std::string& loader, Node& dataset, const MadeDatasets& made) {
  for (std::size_t kind = 0; kind < kinds().size(); ++kind) {
    const auto sources = sources_with(dataset, kinds()[kind]);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      auto value = measured_value(sources[i], kinds()[kind], made);
      const Node* const written = written_value(sources[i], kinds()[kind]);
      if (!value && written != nullptr) value = *written;
      if (!value) continue;
      values_.push_back({.loader = loader,
                         .kind = kind,
                         .place = i,
                         .count = sources.size(),
                         .data = measured_data(sources[i]),
                         .is_written = written != nullptr,
                         .value = std::move(*value)});
    }
  }
}

// Values of the same kind and place are those of the same input, as far as the config tells.
void FittedValues::warn_about_differences() const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    for (std::size_t j = i + 1; j < values_.size(); ++j) {
      const Measured &one = values_[i], &two = values_[j];
      if (one.kind != two.kind || one.loader == two.loader) continue;
      if (one.place != two.place || one.count != two.count) continue;
      const Kind& kind = kinds()[one.kind];
      if (&kind == &classes_kind()) continue;  // see other_label()
      if (text_of(kind, one.value) == text_of(kind, two.value)) continue;
      warn_once(fmt::format(
          "loaders '{}' and '{}' have different values of {}, each of its own data, so a number "
          "means something else in each of them; if one input of the model gets both, set {} in "
          "both",
          one.loader, two.loader, kind.option, kind.option));
    }
  }
}

// The value of a train loader with the same data; nullptr if there is none, or if they differ.
// One that was measured comes before one that is written.
const FittedValues::Measured* FittedValues::of_same_data(const Measured& wanted) const {
  const Measured* found = nullptr;
  for (const Measured& value : values_) {
    if (value.kind != wanted.kind || value.data != wanted.data) continue;
    const Kind& kind = kinds()[value.kind];
    if (found != nullptr && text_of(kind, found->value) != text_of(kind, value.value)) {
      return nullptr;
    }
    if (found == nullptr || !value.is_written) found = &value;
  }
  return found;
}

// One that all agree on; else the one at the same place of a train loader with as many sources.
const Node& FittedValues::choose(const Measured& wanted, const DatasetNode& source) const {
  std::map<std::string, const Node*> all, at_place;
  for (const Measured& value : values_) {
    if (value.kind != wanted.kind) continue;
    const std::string text = text_of(kinds()[value.kind], value.value);
    all.emplace(text, &value.value);
    if (value.count == wanted.count && value.place == wanted.place) {
      at_place.emplace(text, &value.value);
    }
  }
  if (all.size() == 1) return *all.begin()->second;
  if (at_place.size() == 1) return *at_place.begin()->second;
  source.node->fail(
      "the train loaders have {} different values of {}, so it is not clear which of them belongs "
      "to these data; set {} here",
      all.size(), kinds()[wanted.kind].option, kinds()[wanted.kind].option);
}

void FittedValues::give_to(Node& dataset) const {
  for (std::size_t kind = 0; kind < kinds().size(); ++kind) {
    const auto is_kind = [&](const Measured& value) { return value.kind == kind; };
    if (std::ranges::none_of(values_, is_kind)) continue;
    const auto sources = sources_with(dataset, kinds()[kind]);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const DatasetNode& source = sources[i];
      if (source.find(kinds()[kind].option) != nullptr || kinds()[kind].is_own(source)) continue;
      const Measured wanted{
          .kind = kind, .place = i, .count = sources.size(), .data = measured_data(source)};
      if (const Measured* const same = of_same_data(wanted)) {
        // Data are read only once if their options stay the same.
        if (same->is_written) source.options->set(kinds()[kind].option, same->value);
        continue;
      }
      source.options->set(kinds()[kind].option, Node(choose(wanted, source)));
    }
  }
}

std::string FittedValues::hash() const {
  std::string text;
  for (const Measured& value : values_) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} of '{}' {:016x}", kinds()[value.kind].option, value.loader,
                        std::hash<std::string>{}(text_of(kinds()[value.kind], value.value)));
  }
  return text;
}

std::optional<std::string> other_label(Node& dataset, Node& other, const MadeDatasets& made) {
  const auto own = label_names(dataset, made), others = label_names(other, made);
  const auto [at, different] = std::ranges::mismatch(own, others);
  if (at == own.end() || different == others.end()) return std::nullopt;
  const bool can_be_set = !sources_with(dataset, classes_kind()).empty();
  return fmt::format("class {} is '{}', but '{}' in {}; {}", at - own.begin(), *at, *different,
                     other.path(),
                     can_be_set ? "set train_classes of both to one list of all classes"
                                : "give both the same classes in the same order");
}

void check_joined(Node& dataset, const MadeDatasets& made) {
  const DatasetNode here = dataset_node(dataset);
  const std::vector<DatasetNode> parts = parts_of(here);
  for (const DatasetNode& part : parts) check_joined(*part.node, made);
  if (here.target != "Concat") return;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    check_values(*parts[i].node, *parts.front().node, made);
    const auto label = other_label(*parts[i].node, *parts.front().node, made);
    if (label) parts[i].node->fail("{}", *label);
  }
}

bool write_fitted(Node& dataset, const RecordedDataset& options) {
  bool has_any = false;
  // A data set is found by its text, which changes as values are written.
  Node unchanged = dataset;
  for (const Kind& kind : kinds()) {
    const auto before = sources_with(unchanged, kind), after = sources_with(dataset, kind);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!options.is_train && before[i].find(kind.option) == nullptr) continue;
      auto value = measured_value(before[i], kind, options.made);
      if (!value) continue;
      if (!fits_config(*value)) {
        const Node* const file = before[i].find(kind.file_option);
        if (file == nullptr) {
          // The value itself, or its file, may be written there.
          if (written_value(before[i], kind) == nullptr) warn_too_long(before[i], kind);
          continue;
        }
        value = *file;
      }
      after[i].options->set(kind.option, std::move(*value));
      has_any = true;
    }
  }
  return has_any;
}

void record_fitted(const Recipe& recipe, Node& document) {
  for (const FittedDataset& fitted : recipe.fitted) {
    if (!fitted.stage.empty()) {
      record_in_stage(document, fitted);
    } else {
      part_of(document, "loaders")->find(fitted.loader)->set("dataset", fitted.dataset);
    }
  }
  document.set_paths();
}

void leave_out_augment(Node& dataset) {
  for (const DatasetNode& source : sources_of(dataset)) {
    // A data set of a plugin may mean something else by it.
    if (source.target == "HDF5" && source.options != nullptr) source.options->erase("augment");
  }
}

}  // namespace lockstep::recipe
