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
       .measure = [](const data::Dataset& dataset) -> std::optional<Node> {
         const auto* const table = dynamic_cast<const data::TableDataset*>(&dataset);
         if (table == nullptr) return std::nullopt;
         return to_node(table->schema());
       }},
      {.option = "train_classes",
       .type = config::Value<std::vector<std::string>>::type(),
       .measure = [](const data::Dataset& dataset) -> std::optional<Node> {
         const auto names = dataset.class_names();
         if (names.empty()) return std::nullopt;
         return text_list(names);
       },
       .is_own = [](const DatasetNode& source) { return source.find("classes") != nullptr; }}};
  return all;
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

// The loader of a stage in the document: in the stage's own part if that sets it, else in the part
// that all stages share.
Node* loader_in(Node& document, const FittedDataset& fitted) {
  const auto in = [&](Node* part) {
    Node* const loaders = part == nullptr ? nullptr : part->find("loaders");
    return loaders == nullptr ? nullptr : loaders->find(fitted.loader);
  };
  Node* const stages = document.find("stages");
  if (Node* const own = in(stages == nullptr ? nullptr : stages->find(fitted.stage))) return own;
  if (Node* const shared = in(&document)) return shared;
  return in(document.find("args"));
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
      const data::DatasetPtr source = made.find(*sources[i].node);
      auto value = source == nullptr ? std::nullopt : kinds()[kind].measure(*source);
      const Node* const written = sources[i].find(kinds()[kind].option);
      if (!value && written != nullptr && !written->is_null()) value = *written;
      if (!value) continue;
      values_.push_back({.loader = loader,
                         .kind = kind,
                         .place = i,
                         .count = sources.size(),
                         .data = measured_data(sources[i]),
                         .value = std::move(*value)});
    }
  }
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
      // The same data have the same values, and are read only once if their options stay the same.
      const std::string data = measured_data(source);
      if (std::ranges::any_of(values_, [&](const Measured& value) { return value.data == data; })) {
        continue;
      }
      Node value = choose({.kind = kind, .place = i, .count = sources.size()}, source);
      source.options->set(kinds()[kind].option, std::move(value));
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

bool write_fitted(Node& dataset, const RecordedDataset& options) {
  bool has_any = false;
  // A data set is found by its text, which changes as values are written.
  Node unchanged = dataset;
  for (const Kind& kind : kinds()) {
    const auto before = sources_with(unchanged, kind), after = sources_with(dataset, kind);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!options.is_train && before[i].find(kind.option) == nullptr) continue;
      const data::DatasetPtr made = options.made.find(*before[i].node);
      auto value = made == nullptr ? std::nullopt : kind.measure(*made);
      if (!value) continue;
      if (!fits_config(*value)) {
        const Node* const file = before[i].find("save_schema");
        if (file == nullptr) {
          warn(fmt::format(
              "{}: {} is too long for the config of the run, so an evaluation would measure its "
              "own; set save_schema to a file, and the run refers to it",
              before[i].node->where(), kind.option));
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
    if (Node* const loader = loader_in(document, fitted)) loader->set("dataset", fitted.dataset);
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
