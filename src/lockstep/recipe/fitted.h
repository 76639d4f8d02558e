// Values that data sets measure in the training data: the statistics that values are scaled by, the
// schema of a table, the list of classes. Other data must be read with the same values, or their
// numbers mean something else. So they go from the train loaders to all others, and with the run's
// config to `lockstep evaluate` and `lockstep predict`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/config/node.h"
#include "lockstep/config/value.h"
#include "lockstep/recipe/dataset_tree.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/source/table_schema.h"
#include "lockstep/train/callback.h"

namespace lockstep::config {

template <>
struct EnumNames<data::ColumnType> {
  static constexpr std::pair<data::ColumnType, const char*> names[] = {
      {data::ColumnType::kNumber, "number"}, {data::ColumnType::kCategory, "category"}};
};

template <>
struct EnumNames<data::Missing> {
  static constexpr std::pair<data::Missing, const char*> names[] = {
      {data::Missing::kError, "error"},
      {data::Missing::kMean, "mean"},
      {data::Missing::kValue, "value"},
      {data::Missing::kDrop, "drop"}};
};

template <>
struct EnumNames<data::UnknownCategory> {
  static constexpr std::pair<data::UnknownCategory, const char*> names[] = {
      {data::UnknownCategory::kError, "error"}, {data::UnknownCategory::kCode, "code"}};
};

template <>
struct Value<data::TableColumn> {
  static std::string type() { return "column"; }
  static data::TableColumn read(const Node& node);
  static std::string show(const data::TableColumn&) { return ""; }
};

// The path of its file, or a mapping, as `lockstep run` records it.
template <>
struct Value<data::TableSchema> {
  static std::string type() { return "schema (path, or mapping)"; }
  static data::TableSchema read(const Node& node);
  static std::string show(const data::TableSchema&) { return ""; }
};

}  // namespace lockstep::config

namespace lockstep::recipe {

// The schema as a mapping, with all digits.
config::Node to_node(const data::TableSchema& schema);

// The measured values of some loaders.
class FittedValues {
 public:
  // Adds those of a train loader's data set: the values that are written in its options, and those
  // that were measured as its sources were made.
  void add(const std::string& loader, config::Node& dataset, const MadeDatasets& made);

  // Writes them into the options of another loader's data set. Options that it sets itself stay.
  // Throws LocatedError if the train loaders have different values, so that it is not clear which
  // ones are meant.
  void give_to(config::Node& dataset) const;

  // Warns of train loaders whose numbers mean different things.
  void warn_about_differences() const;

  // As text, to compare them between ranks. Empty if there are none.
  std::string hash() const;

 private:
  struct Measured {
    std::string loader = {};
    std::size_t kind = 0;     // which of the options that can be measured
    std::size_t place = 0;    // among the loader's sources that have the option
    std::size_t count = 0;    // of these sources
    std::string data = {};    // the source as text, without what does not change the value
    bool is_written = false;  // in the config
    config::Node value = {};
  };

  const Measured* of_same_data(const Measured& wanted) const;
  const config::Node& choose(const Measured& wanted, const DatasetNode& source) const;

  std::vector<Measured> values_;
};

// Throws LocatedError if data sets that are joined by Concat measured different values: the same
// number would mean different things in one batch.
void check_joined(config::Node& dataset, const MadeDatasets& made);

// The first label that means another class in another data set, as a message. Nothing if there is
// none; one of them may lack the last classes. Labels that a transform changes are not compared.
std::optional<std::string> other_label(config::Node& dataset, config::Node& other,
                                       const MadeDatasets& made);

// Writes the measured values of a data set's sources into its options: all of them if it is one of
// a train loader, else those that it names, which may be files. True if there are any.
struct RecordedDataset {
  const MadeDatasets& made;
  bool is_train = false;
};
bool write_fitted(config::Node& dataset, const RecordedDataset& options);

// Writes the measured values into the document that the recipe was made from.
void record_fitted(const Recipe& recipe, config::Node& document);

// `augment` of fields is for training. Removes it from a data set that is evaluated.
void leave_out_augment(config::Node& dataset);

// Lets the ranks of a run compare the measured values. They differ if each host has data of its own
// (Partitioned) and measures them alone.
class FittedDataCallback : public Callback {
 public:
  explicit FittedDataCallback(std::string hash) : hash_(std::move(hash)) {}

  std::string name() const override { return "FittedDataCallback"; }
  CallbackTraits traits() const override {
    return {.order = Order::kInternal,
            .ranks = Ranks::kAll,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override { return hash_; }

 private:
  std::string hash_;
};

}  // namespace lockstep::recipe
