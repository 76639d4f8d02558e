#include "lockstep/recipe/same_samples.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/text.h"
#include "lockstep/config/fields.h"
#include "lockstep/config/registry.h"
#include "lockstep/config/value.h"
#include "lockstep/config/yaml.h"
#include "lockstep/data/iterable_dataset.h"
#include "lockstep/data/subset_sampler.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/train/state.h"

namespace lockstep::recipe {
namespace {

namespace fs = std::filesystem;
using config::Mistakes;
using config::Node;

// Options of data sets in plugins that change samples or how they are read, but not which ones
// there are.
const std::set<std::string> kSameSamples = {
    "transform",      "target_transform",
    "augment",        "scaling",
    "normalize",      "schema",
    "save_schema",    "without_targets",
    "types",          "categories",
    "missing",        "missing_value",
    "missing_values", "unknown",
    "one_hot",        "separator",
    "header",         "train_classes",
    "channels",       "floats",
    "exact",          "most_pixels",
    "on_error",       "allow_non_finite",
    "memory",         "flat",
    "channel_axis",   "download",
    "mirrors",        "allow_empty",
    "extensions",
};

// The same text for each way to write a path.
std::string canonical(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found.string();
}

// Where samples come from.
struct Source {
  std::string text = "";              // equal for the same data, without all that follows
  std::set<std::string> pieces = {};  // of the data, such as checkpoints; one is enough to share
  std::set<std::string> inputs = {};  // arrays that are side by side in a sample; none: all
  std::string layout = "";            // how the data are cut into samples
  std::string split = "";             // how the samples are divided into parts
  std::string part = "all";

  bool has_data_of(const Source& other) const {
    const auto is_there = [&](const std::string& piece) { return other.pieces.contains(piece); };
    if (text != other.text) return false;
    if (pieces != other.pieces && std::ranges::none_of(pieces, is_there)) return false;
    return std::ranges::includes(inputs, other.inputs) ||
           std::ranges::includes(other.inputs, inputs);
  }
};

// The options of a data set with their defaults, as text.
class Options {
 public:
  explicit Options(const DatasetNode& dataset) : dataset_(dataset) {}

  // Null if it is not set and has no default.
  Node node(const char* name) const {
    const Node* const found = dataset_.find(name);
    if (found != nullptr && !found->is_null()) return *found;
    const auto& fields = targets().datasets.info(dataset_.target).fields;
    const auto field = std::ranges::find(fields, name, &config::FieldInfo::name);
    if (field == fields.end() || field->fallback.empty()) return {};
    return *config::parse_yaml("it: " + field->fallback, dataset_.target).find("it");
  }
  // One value may be written as such or as a list.
  std::vector<std::string> list(const char* name) const {
    const Node found = node(name);
    std::vector<std::string> texts;
    if (found.is_scalar()) texts.push_back(text_of(found));
    for (const Node& item : found.items()) texts.push_back(text_of(item));
    return texts;
  }
  std::string text(const char* name) const { return join(list(name), ", "); }
  std::string all(const std::vector<const char*>& names) const {
    std::string texts;
    for (const char* const name : names) texts += fmt::format("{}: {}\n", name, text(name));
    return texts;
  }

 private:
  // The same for each way to write a value.
  static std::string text_of(const Node& node) {
    if (!node.is_plain()) return node.text();
    if (const auto truth = config::parse_bool(node.text())) return *truth ? "true" : "false";
    const auto number = config::parse_double(node.text());
    // A large integer is not exact as a double.
    const bool is_integer = node.text().find_first_of(".eE") == std::string::npos;
    return number && !is_integer ? config::show_double(*number) : node.text();
  }

  DatasetNode dataset_;
};

// An array in a file, "data.npz#x", or a whole one, "x.npy".
std::string canonical_array(const std::string& name) {
  const std::size_t end = name.rfind('#');
  if (end == std::string::npos) return canonical(name);
  return canonical(name.substr(0, end)) + name.substr(end);
}

// The arrays that make the model's input. If it is not clear which ones do, all that are named.
std::set<std::string> arrays(const Options& options, const std::string& file) {
  const auto array = [&](const std::string& name) {
    return file.empty() ? canonical_array(name) : canonical(file) + "#" + name;
  };
  const Node keys = options.node("keys");
  if (keys.entries().empty()) return {array(options.text("features"))};
  if (const Node* const features = keys.find("features")) return {array(features->text())};
  std::set<std::string> all;
  for (const auto& [key, name] : keys.entries()) all.insert(array(name.text()));
  return all;
}

Source field_source(const Options& options) {
  const std::string path = options.text("path");
  Source source{.text = canonical(path),
                .layout = options.all({"batch_size", "sample_to", "dimensions"}),
                .part = options.text("part")};
  const double granularity = config::parse_double(options.text("time_granularity")).value_or(1);
  for (const std::string& checkpoint : options.list("checkpoints")) {
    const double time = config::parse_double(checkpoint).value_or(0) * granularity;
    source.pieces.insert(config::show_double(time));
  }
  const auto features = options.list("features"), labels = options.list("feature_labels");
  const bool has_files = path.find("{feature}") != std::string::npos;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const std::string& label = i < labels.size() ? labels[i] : features[i];
    source.inputs.insert(has_files ? features[i] + "#" + label : label);
  }
  // Without a shuffle its seed has no effect, and the whole is not divided.
  if (source.part != "all") source.split = options.all({"train_fraction"});
  source.split += options.all({"shuffle"});
  if (options.text("shuffle") == "true") source.split += options.all({"seed"});
  return source;
}

Source qmnist_source(const Options& options) {
  std::string what = options.text("what");
  if (what.empty()) what = options.text("train") == "true" ? "train" : "test";
  std::set<std::string> pieces = {what};
  if (what == "test") pieces = {"test10k", "test50k"};
  if (what == "nist") pieces = {"train", "test10k", "test50k"};
  return {.text = canonical(options.text("root")), .pieces = std::move(pieces)};
}

Source text_source(const Options& options) {
  Source source{.layout =
                    options.all({"window", options.text("stride").empty() ? "window" : "stride"})};
  if (!options.text("path").empty()) source.pieces.insert(canonical(options.text("path")));
  for (const std::string& path : options.list("paths")) source.pieces.insert(canonical(path));
  return source;
}

// Of a data set whose samples are chosen by the place of its files and some other options.
using SourceOf = std::function<Source(const Options&)>;
SourceOf source_with(const char* path, const std::vector<const char*>& others = {}) {
  return [=](const Options& options) {
    return Source{.text = canonical(options.text(path)) + "\n" + options.all(others)};
  };
}

// The data sets of this library. An option that is not named here does not choose samples.
const std::map<std::string, SourceOf>& known_sources() {
  static const std::map<std::string, SourceOf> known = {
      {"MNIST", source_with("root", {"train"})},
      {"FashionMNIST", source_with("root", {"train"})},
      {"KMNIST", source_with("root", {"train"})},
      {"CIFAR10", source_with("root", {"train"})},
      {"CIFAR100", source_with("root", {"train"})},
      {"EMNIST", source_with("root", {"split", "train"})},
      {"QMNIST", qmnist_source},
      {"Noise",
       [](const Options& options) {
         return Source{.text = options.all({"samples", "shape", "seed"})};
       }},
      {"CsvDataset", source_with("path")},
      {"ImageFolder",
       [](const Options& options) {
         const std::string table = options.text("csv");
         return Source{.text = canonical(options.text("root")) + "\n" + canonical(table)};
       }},
      {"TensorFile",
       [](const Options& options) {
         return Source{.text = "", .inputs = arrays(options, options.text("path"))};
       }},
      {"ArrayDataset",
       [](const Options& options) {
         return Source{.text = "", .inputs = arrays(options, options.text("file"))};
       }},
      {"Hdf5Table",
       [](const Options& options) {
         const auto features = options.list("features");
         return Source{.text = canonical(options.text("path")),
                       .inputs = {features.begin(), features.end()}};
       }},
      {"HDF5", field_source},
      {"TextDataset", text_source}};
  return known;
}

// Nothing is known about the options of a plugin's data set, so each that is set may choose samples
// if its name does not say something else.
Source plugin_source(const DatasetNode& dataset) {
  Source source;
  Node options = dataset.options == nullptr ? Node::map() : *dataset.options;
  std::vector<config::FieldInfo> fields;
  if (targets().datasets.contains(dataset.target)) {
    fields = targets().datasets.info(dataset.target).fields;
  }
  const auto part = std::ranges::find(fields, "part", &config::FieldInfo::name);
  const bool has_parts = part != fields.end();
  if (has_parts && !part->fallback.empty()) source.part = part->fallback;
  Node split = Node::map(), rest = Node::map();
  std::ranges::sort(options.entries(), {}, &Node::Entry::first);
  for (auto& [key, value] : options.entries()) {
    const bool is_default =
        std::ranges::any_of(fields, [&, &name = key, &node = value](auto& field) {
          return field.name == name && node.is_scalar() && !field.fallback.empty() &&
                 field.fallback == node.text();
        });
    if (is_default || key == config::kTargetKey || kSameSamples.contains(key)) continue;
    if (key == "part") {
      source.part = value.text();
    } else if (has_parts && (key == "train_fraction" || key == "shuffle" || key == "seed")) {
      split.set(key, value);
    } else if (value.is_scalar() && (key == "path" || key == "root" || key == "csv")) {
      rest.set(key, Node::text(canonical(value.text())));
    } else {
      rest.set(key, value);
    }
  }
  source.text = config::to_yaml(rest);
  source.split = config::to_yaml(split);
  return source;
}

Source source_of(const DatasetNode& dataset) {
  const auto known = known_sources().find(dataset.target);
  const bool is_known =
      known != known_sources().end() && targets().datasets.contains(dataset.target);
  Source source = is_known ? known->second(Options(dataset)) : plugin_source(dataset);
  source.text = dataset.target + "\n" + source.text;
  return source;
}

// Samples of one source that follow each other in a data set.
struct Samples {
  Source source;
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool is_cut = false;                                // the source has others
  std::optional<std::set<std::int64_t>> chosen = {};  // of these; none: all

  bool are_all() const { return !is_cut && !chosen; }
  bool contain(std::int64_t index) const {
    return index >= first && index - first < count && (!chosen || chosen->contains(index));
  }
};

bool overlap(const Samples& a, const Samples& b) {
  const Source &one = a.source, &two = b.source;
  if (!one.has_data_of(two)) return false;
  if (one.layout != two.layout || one.pieces != two.pieces) {
    // Indices cannot be compared. Only samples that are certainly the same count.
    const auto is_whole = [](const Samples& of) { return of.are_all() && of.source.part == "all"; };
    return is_whole(a) || is_whole(b) || (a.are_all() && b.are_all() && one.part == two.part);
  }
  const bool is_divided = one.part != "all" && two.part != "all";
  // Parts of different divisions share samples.
  if (is_divided && one.split == two.split && one.part != two.part) return false;
  // Indices of a part are not those of the whole, or of another order.
  if (one.part != two.part || one.split != two.split) return true;
  const auto any_in = [](const std::set<std::int64_t>& chosen, const Samples& other) {
    return std::ranges::any_of(chosen, [&](std::int64_t index) { return other.contain(index); });
  };
  if (a.chosen) return any_in(*a.chosen, b);
  if (b.chosen) return any_in(*b.chosen, a);
  return std::max(a.first, b.first) < std::min(a.first + a.count, b.first + b.count);
}

std::int64_t size_of(const DatasetNode& dataset, const MadeDatasets& made) {
  const data::DatasetPtr found = made.find(*dataset.node);
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max() / 4;
  if (found == nullptr) return kAny;
  const auto* const stream = dynamic_cast<const data::IterableDataset*>(found.get());
  return stream != nullptr ? stream->samples().value_or(kAny) : found->size();
}

struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// All samples of a data set, in its order.
using Column = std::vector<Samples>;

// Some consecutive samples of all.
Column cut(const Column& all, const Range& range) {
  Column left;
  std::int64_t start = 0;  // index of the part's first sample in the data set
  for (Samples part : all) {
    const std::int64_t from = std::max(range.first, start);
    const std::int64_t to = std::min(range.first + range.count, start + part.count);
    const std::int64_t first = part.first + from - start;
    start += part.count;
    if (from >= to) continue;
    part.first = first;
    part.is_cut = part.is_cut || part.count != to - from;
    part.count = to - from;
    left.push_back(std::move(part));
  }
  return left;
}

void append(std::vector<Column>& all, std::vector<Column> more) {
  while (all.size() < more.size()) all.push_back(all.back());
  while (more.size() < all.size()) more.push_back(more.back());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::ranges::move(more[i], std::back_inserter(all[i]));
  }
}

// One column, or several for data sets that are side by side.
std::vector<Column> columns_of(const DatasetNode& dataset, const MadeDatasets& made) {
  const auto parts = parts_of(dataset);
  if (parts.empty()) {
    return {{{.source = source_of(dataset), .first = 0, .count = size_of(dataset, made)}}};
  }
  std::vector<Column> all = columns_of(parts.front(), made);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto more = columns_of(parts[i], made);
    if (dataset.target == "Concat") append(all, std::move(more));
    if (dataset.target == "Merge") std::ranges::move(more, std::back_inserter(all));
  }
  if (dataset.target != "Subset") return all;
  const Node* const first = dataset.find("first");
  std::int64_t start = first == nullptr ? 0 : config::Value<std::int64_t>::read(*first);
  if (start < 0) start += size_of(parts.front(), made);
  for (Column& column : all) {
    column = cut(column, {.first = start, .count = size_of(dataset, made)});
  }
  return all;
}

void choose(Column& column, const std::vector<std::int64_t>& indices) {
  std::int64_t start = 0;
  for (Samples& part : column) {
    part.chosen.emplace();
    for (const std::int64_t index : indices) {
      if (index >= start && index < start + part.count) {
        part.chosen->insert(part.first + index - start);
      }
    }
    start += part.count;
  }
}

// Those that the loader's sampler may ever choose.
std::vector<Column> columns_of(Node& loader, const data::Loader& made_loader,
                               const MadeDatasets& made) {
  std::vector<Column> all = columns_of(dataset_node(*loader.find("dataset")), made);
  const auto* const sampler =
      dynamic_cast<const data::SubsetRandomSampler*>(made_loader.options().sampler.get());
  if (sampler == nullptr) return all;
  const std::vector<std::int64_t> indices = sampler->indices(1);  // the same ones in each epoch
  for (Column& column : all) choose(column, indices);
  return all;
}

// Data sets that are side by side make other samples if one of them does: many samples may have a
// grid in common.
bool share_samples(const std::vector<Column>& a, const std::vector<Column>& b) {
  if (a.size() > b.size()) return share_samples(b, a);
  const auto overlaps = [](const Column& one, const Column& two) {
    return std::ranges::any_of(one, [&](const Samples& some) {
      return std::ranges::any_of(two, [&](const Samples& other) { return overlap(some, other); });
    });
  };
  return std::ranges::all_of(a, [&](const Column& one) {
    return std::ranges::any_of(b, [&](const Column& two) { return overlaps(one, two); });
  });
}

bool is_allowed(const Node& loader) {
  const Node* const allowed = loader.find("allow_training_data");
  return allowed != nullptr && config::read_bool(*allowed);
}

}  // namespace

void check_training_data(Node node, const data::Loaders& loaders, const MadeDatasets& made) {
  Mistakes mistakes;
  for (auto& [name, evaluated] : node.entries()) {
    if (is_train_loader(name) || is_allowed(evaluated)) continue;
    const auto own = columns_of(evaluated, loaders.at(name), made);
    for (auto& [train_name, trained] : node.entries()) {
      if (!is_train_loader(train_name)) continue;
      if (!share_samples(own, columns_of(trained, loaders.at(train_name), made))) continue;
      mistakes.add(fmt::format(
          "{}: has samples of loader '{}', so its metrics say nothing about new data; choose other "
          "samples (train: false, part: valid, a Subset, another file), remove the loader, or set "
          "its allow_training_data: true",
          evaluated.find("dataset")->where(), train_name));
    }
  }
  mistakes.raise();
}

}  // namespace lockstep::recipe
