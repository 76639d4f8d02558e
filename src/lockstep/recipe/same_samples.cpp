#include "lockstep/recipe/same_samples.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

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

// Options that change samples or how they are read, but not which ones there are.
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
  std::error_code error;
  const fs::path found = fs::weakly_canonical(path, error);
  return error ? path : found.string();
}

// Where samples come from: the options that decide which ones there are.
struct Source {
  std::string text;   // without `part` and what belongs to it
  std::string split;  // how the data are divided into parts
  std::string part = "all";

  bool shares_samples(const Source& other) const {
    if (text != other.text) return false;
    if (part == "all" || other.part == "all") return true;
    return split == other.split && part == other.part;
  }
};

Source source_of(const DatasetNode& dataset) {
  Source source;
  Node options = dataset.options == nullptr ? Node::map() : *dataset.options;
  std::vector<config::FieldInfo> fields;
  if (targets().datasets.contains(dataset.target)) {
    fields = targets().datasets.info(dataset.target).fields;
  }
  const auto part = std::ranges::find(fields, "part", &config::FieldInfo::name);
  const bool has_parts = part != fields.end();
  if (has_parts && !part->fallback.empty()) source.part = part->fallback;
  const bool is_table = dataset.target == "CsvDataset";
  Node split = Node::map(), rest = Node::map();
  std::ranges::sort(options.entries(), {}, &Node::Entry::first);
  for (auto& [key, value] : options.entries()) {
    const bool is_default =
        std::ranges::any_of(fields, [&, &name = key, &node = value](auto& field) {
          return field.name == name && node.is_scalar() && !field.fallback.empty() &&
                 field.fallback == node.text();
        });
    if (is_default || key == config::kTargetKey || kSameSamples.contains(key)) continue;
    // Columns of the same rows. In other data sets these may be the names of files.
    if (is_table && (key == "features" || key == "targets")) continue;
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
  source.text = dataset.target + "\n" + config::to_yaml(rest);
  source.split = config::to_yaml(split);
  return source;
}

// Samples of one source that follow each other in a data set.
struct Samples {
  Source source;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::optional<std::set<std::int64_t>> chosen = {};  // of these; none: all

  bool contain(std::int64_t index) const {
    return index >= first && index - first < count && (!chosen || chosen->contains(index));
  }
};

bool overlap(const Samples& a, const Samples& b) {
  if (!a.source.shares_samples(b.source)) return false;
  // Indices of a part are not those of the whole.
  if (a.source.part != b.source.part) return true;
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

// Some consecutive samples of all.
std::vector<Samples> cut(const std::vector<Samples>& all, const Range& range) {
  std::vector<Samples> left;
  std::int64_t start = 0;  // index of the part's first sample in the data set
  for (Samples part : all) {
    const std::int64_t from = std::max(range.first, start);
    const std::int64_t to = std::min(range.first + range.count, start + part.count);
    const std::int64_t first = part.first + from - start;
    start += part.count;
    if (from >= to) continue;
    part.first = first;
    part.count = to - from;
    left.push_back(std::move(part));
  }
  return left;
}

// In the order of the data set.
std::vector<Samples> samples_of(const DatasetNode& dataset, const MadeDatasets& made) {
  const auto parts = parts_of(dataset);
  if (parts.empty()) {
    return {{.source = source_of(dataset), .first = 0, .count = size_of(dataset, made)}};
  }
  std::vector<Samples> all = samples_of(parts.front(), made);
  if (dataset.target == "Concat") {
    for (std::size_t i = 1; i < parts.size(); ++i) {
      std::ranges::move(samples_of(parts[i], made), std::back_inserter(all));
    }
  }
  if (dataset.target != "Subset") return all;
  const Node* const first = dataset.find("first");
  std::int64_t start = first == nullptr ? 0 : config::Value<std::int64_t>::read(*first);
  if (start < 0) start += size_of(parts.front(), made);
  return cut(all, {.first = start, .count = size_of(dataset, made)});
}

// Those that the loader's sampler may ever choose.
std::vector<Samples> samples_of(Node& loader, const data::Loader& made_loader,
                                const MadeDatasets& made) {
  std::vector<Samples> all = samples_of(dataset_node(*loader.find("dataset")), made);
  const auto* const sampler =
      dynamic_cast<const data::SubsetRandomSampler*>(made_loader.options().sampler.get());
  if (sampler == nullptr) return all;
  const std::vector<std::int64_t> indices = sampler->indices(1);  // the same ones in each epoch
  std::int64_t start = 0;
  for (Samples& part : all) {
    part.chosen.emplace();
    for (const std::int64_t index : indices) {
      if (index >= start && index < start + part.count) {
        part.chosen->insert(part.first + index - start);
      }
    }
    start += part.count;
  }
  return all;
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
    const auto own = samples_of(evaluated, loaders.at(name), made);
    for (auto& [train_name, trained] : node.entries()) {
      if (!is_train_loader(train_name)) continue;
      const auto others = samples_of(trained, loaders.at(train_name), made);
      const bool shares = std::ranges::any_of(own, [&](const Samples& a) {
        return std::ranges::any_of(others, [&](const Samples& b) { return overlap(a, b); });
      });
      if (!shares) continue;
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
