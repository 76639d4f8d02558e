#include "lockstep/science/field_dataset.h"

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/hdf5.h"

namespace lockstep::science {
namespace {

// One dataset of one file: some channels of a checkpoint's field.
struct FieldPart {
  std::shared_ptr<Hdf5File> file;
  std::string label;
  Sizes channels;  // its leading dimensions
  Sizes size;      // of space

  std::string where() const {
    return fmt::format("{}: dataset '{}'", file->path().string(), label);
  }

  std::int64_t channel_count() const {
    return std::accumulate(channels.begin(), channels.end(), std::int64_t{1}, std::multiplies<>());
  }

  // The block's leading dimensions; the caller appends those of space.
  Block all_channels() const {
    return {
        .start = Sizes(channels.size(), 0), .count = channels, .stride = Sizes(channels.size(), 1)};
  }
};

// How fields are cut.
struct Grid {
  std::int64_t stride = 1;
  Sizes cube;
  Sizes counts;  // of cubes in each dimension

  std::int64_t cubes() const {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{1}, std::multiplies<>());
  }
};

// Throws DataError with the place of the first value that is NaN or infinite.
void require_finite(const torch::Tensor& values, const FieldPart& part, const Block& block) {
  // A finite sum means that all values are finite. A sum that is not may also come from an
  // overflow, so then each value is checked.
  if (std::isfinite(values.sum(torch::kFloat64).item<double>())) return;
  const torch::Tensor places = torch::isfinite(values).logical_not().nonzero();
  if (places.size(0) == 0) return;
  Sizes index;
  for (std::int64_t i = 0; i < values.dim(); ++i) {
    const auto axis = static_cast<std::size_t>(i);
    index.push_back(block.start[axis] + places[0][i].item<std::int64_t>() * block.stride[axis]);
  }
  torch::Tensor first = values;
  for (std::int64_t i = 0; i < values.dim(); ++i) first = first[places[0][i].item<std::int64_t>()];
  throw DataError(
      "{}: the value at [{}] is {}, and {} of the {} that were read are not finite; a model cannot "
      "learn from them: repair the file, or set allow_non_finite to take them as they are",
      part.where(), fmt::join(index, ", "), first.item<double>(), with_thousands(places.size(0)),
      with_thousands(values.numel()));
}

class CubeDataset final : public data::Dataset {
 public:
  struct Snapshot {
    std::vector<FieldPart> features;
    std::vector<FieldPart> targets;  // none: the features
  };

  struct Options {
    bool flat = false;
    bool allow_non_finite = false;
  };

  CubeDataset(std::vector<Snapshot> snapshots, Grid grid, const Options& options)
      : snapshots_(std::move(snapshots)), grid_(std::move(grid)), options_(options) {}

  std::int64_t size() const override {
    return static_cast<std::int64_t>(snapshots_.size()) * grid_.cubes();
  }

  Batch sample(std::int64_t index) const override {
    const Snapshot& snapshot = snapshots_[static_cast<std::size_t>(index / grid_.cubes())];
    const std::int64_t cube = index % grid_.cubes();
    const torch::Tensor features = read(snapshot.features, cube);
    torch::Tensor targets = snapshot.targets.empty() ? features : read(snapshot.targets, cube);
    if (options_.flat) targets = targets.flatten();
    return {{"features", features}, {"targets", targets}};
  }

  // Reads all cubes into memory, with one read per dataset.
  data::DatasetPtr in_memory() const {
    std::vector<torch::Tensor> features, targets;
    for (const Snapshot& snapshot : snapshots_) {
      features.push_back(read_all(snapshot.features));
      targets.push_back(snapshot.targets.empty() ? features.back() : read_all(snapshot.targets));
    }
    const torch::Tensor inputs = torch::cat(features);
    const bool is_same = snapshots_[0].targets.empty();
    const torch::Tensor outputs = is_same ? inputs : torch::cat(targets);
    return data::tensor_dataset(
        {{"features", inputs}, {"targets", options_.flat ? outputs.flatten(1) : outputs}});
  }

  double bytes() const {
    double elements = 0;
    for (const Snapshot& snapshot : snapshots_) {
      for (const auto& parts : {snapshot.features, snapshot.targets}) {
        for (const FieldPart& part : parts) elements += static_cast<double>(part.channel_count());
      }
    }
    for (std::size_t i = 0; i < grid_.cube.size(); ++i) {
      elements *= static_cast<double>(grid_.cube[i] * grid_.counts[i]);
    }
    return elements * sizeof(float);
  }

 private:
  torch::Tensor read_all(const std::vector<FieldPart>& parts) const {
    std::vector<torch::Tensor> channels;
    for (const FieldPart& part : parts) {
      Block block = part.all_channels();
      Sizes shape = {-1};
      for (std::size_t i = 0; i < grid_.cube.size(); ++i) {
        block.start.push_back(0);
        block.count.push_back(grid_.cube[i] * grid_.counts[i]);
        block.stride.push_back(grid_.stride);
        shape.push_back(block.count.back());
      }
      channels.push_back(read_block(part, block).reshape(shape));
    }
    return split_cubes(torch::cat(channels), grid_.cube);
  }

  torch::Tensor read(const std::vector<FieldPart>& parts, std::int64_t cube) const {
    std::vector<torch::Tensor> channels;
    for (const FieldPart& part : parts) {
      Block block = part.all_channels();
      std::int64_t rest = cube;
      Sizes place(grid_.cube.size());
      for (std::size_t i = grid_.cube.size(); i-- > 0;) {
        place[i] = rest % grid_.counts[i];
        rest /= grid_.counts[i];
      }
      for (std::size_t i = 0; i < grid_.cube.size(); ++i) {
        block.start.push_back(place[i] * grid_.cube[i] * grid_.stride);
        block.count.push_back(grid_.cube[i]);
        block.stride.push_back(grid_.stride);
      }
      Sizes shape = {-1};
      shape.insert(shape.end(), grid_.cube.begin(), grid_.cube.end());
      channels.push_back(read_block(part, block).reshape(shape));
    }
    return torch::cat(channels);
  }

  torch::Tensor read_block(const FieldPart& part, const Block& block) const {
    torch::Tensor values = part.file->read(part.label, block);
    if (!options_.allow_non_finite) require_finite(values, part, block);
    return values;
  }

  std::vector<Snapshot> snapshots_;
  Grid grid_;
  Options options_;
};

bool has_feature(const std::string& path) {
  return path.find("{feature}") != std::string::npos;
}

class Opener {
 public:
  explicit Opener(const Hdf5Options& options) : options_(options) {}

  // Opens the datasets of a checkpoint that these names stand for.
  std::vector<FieldPart> open(double checkpoint, const std::vector<std::string>& names,
                              const std::vector<std::string>& labels) {
    std::vector<FieldPart> parts;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string path =
          format_path(options_.path, checkpoint * options_.time_granularity, names[i]);
      auto& file = files_[path];
      if (file == nullptr) file = std::make_shared<Hdf5File>(path);
      FieldPart part{.file = file, .label = {}, .channels = {}, .size = {}};
      if (i < labels.size()) {
        part.label = labels[i];
      } else if (!names[i].empty() && !has_feature(options_.path)) {
        part.label = names[i];
      } else {
        const auto known = file->names();
        if (known.empty()) throw DataError("{}: has no dataset", path);
        part.label = known.back();
      }
      divide(part, file->shape(part.label));
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  // Divides the dataset's dimensions into channels and space.
  void divide(FieldPart& part, const Sizes& shape) const {
    const auto rank = static_cast<std::int64_t>(shape.size());
    const std::int64_t space = options_.dimensions.value_or(std::min<std::int64_t>(rank, 3));
    if (rank < space || rank > space + 2 || rank == 0) {
      throw DataError(
          "{}: expected {} dimensions of space, and up to two of channels before them, got [{}]",
          part.where(), space, fmt::join(shape, ", "));
    }
    if (std::ranges::any_of(shape, [](std::int64_t side) { return side == 0; })) {
      throw DataError("{}: has shape [{}], so it is empty", part.where(), fmt::join(shape, ", "));
    }
    part.channels.assign(shape.begin(), shape.end() - space);
    part.size.assign(shape.end() - space, shape.end());
  }

  const Hdf5Options& options_;
  std::map<std::string, std::shared_ptr<Hdf5File>> files_;
};

void check(const Hdf5Options& options) {
  const auto fail = [](const char* option, const std::string& expected) {
    throw ConfigError("hdf5_dataset: {}: expected {}", option, expected);
  };
  if (options.path.empty()) fail("path", "a path, got none");
  if (options.checkpoints.empty()) fail("checkpoints", "at least one, got none");
  if (has_feature(options.path) && options.features.empty()) {
    fail("features", "names for the path's {feature}, got none");
  }
  if (has_feature(options.path) && options.target.empty() && !options.target_labels.empty()) {
    fail("target", "names for the path's {feature}, got target_labels only");
  }
  if (options.feature_labels.size() > options.features.size() && !options.features.empty()) {
    fail("feature_labels", fmt::format("at most one per feature, got {} for {}",
                                       options.feature_labels.size(), options.features.size()));
  }
  if (options.target_labels.size() > options.target.size() && !options.target.empty()) {
    fail("target_labels", fmt::format("at most one per target, got {} for {}",
                                      options.target_labels.size(), options.target.size()));
  }
  if (options.dimensions && (*options.dimensions < 1 || *options.dimensions > 3)) {
    fail("dimensions", fmt::format("1 to 3, got {}", *options.dimensions));
  }
  if (options.train_fraction && !(*options.train_fraction > 0 && *options.train_fraction < 1)) {
    fail("train_fraction",
         fmt::format("a number between 0 and 1, got {}", *options.train_fraction));
  }
  for (const std::int64_t side : options.batch_size) {
    if (side < 1) fail("batch_size", fmt::format("positive integers, got {}", side));
  }
}

Grid grid_of(const Hdf5Options& options, const FieldPart& first) {
  Grid grid;
  Sizes size = first.size;
  if (options.sample_to) {
    for (const std::int64_t side : size) {
      if (side != size[0] || *options.sample_to < 1 || side % *options.sample_to != 0) {
        throw DataError(
            "{}: a field of [{}] cannot be sampled to {} points per side: sides must be equal and "
            "a multiple of that number",
            first.where(), fmt::join(size, ", "), *options.sample_to);
      }
    }
    grid.stride = size[0] / *options.sample_to;
    size.assign(size.size(), *options.sample_to);
  }
  grid.cube = options.batch_size.empty() ? size : options.batch_size;
  if (grid.cube.size() == 1) grid.cube.assign(size.size(), grid.cube[0]);
  if (grid.cube.size() != size.size()) {
    throw ConfigError("hdf5_dataset: batch_size: expected one number or {}, got {}", size.size(),
                      grid.cube.size());
  }
  bool uneven = false;
  for (std::size_t i = 0; i < size.size(); ++i) {
    grid.counts.push_back(size[i] / grid.cube[i]);
    uneven = uneven || size[i] % grid.cube[i] != 0;
  }
  if (grid.cubes() == 0) {
    throw DataError("{}: a cube of [{}] does not fit into [{}]", first.where(),
                    fmt::join(grid.cube, ", "), fmt::join(size, ", "));
  }
  if (uneven) {
    warn(fmt::format("{}: [{}] is not a multiple of cubes of [{}]: what is left over is not used",
                     first.where(), fmt::join(size, ", "), fmt::join(grid.cube, ", ")));
  }
  return grid;
}

void check_size(const FieldPart& part, const FieldPart& first) {
  if (part.size == first.size) return;
  throw DataError("{}: has size [{}], expected [{}] as {} has", part.where(),
                  fmt::join(part.size, ", "), fmt::join(first.size, ", "), first.where());
}

// Each part of a checkpoint must have as many channels as that part of the first checkpoint.
void check_channels(const std::vector<FieldPart>& parts, const std::vector<FieldPart>& first) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].channel_count() == first[i].channel_count()) continue;
    throw DataError("{}: has {} channels, expected {} as {} has", parts[i].where(),
                    parts[i].channel_count(), first[i].channel_count(), first[i].where());
  }
}

}  // namespace

std::string format_path(const std::string& pattern, double checkpoint, const std::string& feature) {
  std::string path;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '{') {
      path += pattern[at++];
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    const std::string field = end == std::string::npos ? "" : pattern.substr(at + 1, end - at - 1);
    const std::string name = field.substr(0, field.find(':'));
    const std::string format = field.size() > name.size() ? field.substr(name.size()) : "";
    try {
      if (name == "feature" && format.empty()) {
        path += feature;
      } else if (name == "checkpoint") {
        // As in Python: no format and "d" print an integer, ".2f" prints a number with a fraction.
        const bool whole = std::trunc(checkpoint) == checkpoint;
        const bool as_integer = whole && (format.empty() || format.back() == 'd');
        const std::string spec = "{" + format + "}";
        path += as_integer ? fmt::format(fmt::runtime(spec), static_cast<std::int64_t>(checkpoint))
                           : fmt::format(fmt::runtime(spec), checkpoint);
      } else {
        throw fmt::format_error("");
      }
    } catch (const fmt::format_error&) {
      throw ConfigError(
          "path: '{}': expected {{feature}} or {{checkpoint}}, with a format such as "
          "{{checkpoint:04d}}, got '{{{}}}'",
          pattern, field);
    }
    at = end + 1;
  }
  return path;
}

FieldData hdf5_dataset(const Hdf5Options& options) {
  check(options);
  // Without names, each label is a dataset of the one file. Without names and labels, one empty
  // name stands for the last dataset of the file.
  const auto names_of = [](const std::vector<std::string>& names,
                           const std::vector<std::string>& labels) {
    return names.empty() ? std::vector<std::string>(std::max<std::size_t>(1, labels.size()))
                         : names;
  };
  const bool has_targets = !options.target.empty() || !options.target_labels.empty();
  Opener opener(options);
  std::vector<CubeDataset::Snapshot> snapshots;
  for (const double checkpoint : options.checkpoints) {
    CubeDataset::Snapshot snapshot;
    snapshot.features = opener.open(checkpoint, names_of(options.features, options.feature_labels),
                                    options.feature_labels);
    if (has_targets) {
      snapshot.targets = opener.open(checkpoint, names_of(options.target, options.target_labels),
                                     options.target_labels);
    }
    snapshots.push_back(std::move(snapshot));
  }
  const FieldPart& first = snapshots[0].features[0];
  for (const auto& snapshot : snapshots) {
    for (const auto& part : snapshot.features) check_size(part, first);
    for (const auto& part : snapshot.targets) check_size(part, first);
    check_channels(snapshot.features, snapshots[0].features);
    check_channels(snapshot.targets, snapshots[0].targets);
  }
  const Grid grid = grid_of(options, first);
  FieldData data{.train = {}, .valid = {}, .all = {}, .size = {}, .cube = grid.cube};
  for (std::size_t i = 0; i < grid.cube.size(); ++i)
    data.size.push_back(grid.counts[i] * grid.cube[i]);
  const auto cubes = std::make_shared<CubeDataset>(
      std::move(snapshots), grid,
      CubeDataset::Options{.flat = options.flat, .allow_non_finite = options.allow_non_finite});
  data.all = cubes->bytes() > static_cast<double>(options.memory) ? cubes : cubes->in_memory();
  const std::int64_t count = data.all->size();
  if (!options.train_fraction) {
    data.train = data.valid = data.all;
    return data;
  }
  if (count == 1) {
    throw ConfigError(
        "hdf5_dataset: train_fraction: {} of a single cube leaves nothing for validation; cut the "
        "field of [{}] into smaller cubes with batch_size, add checkpoints, or leave "
        "train_fraction "
        "out",
        *options.train_fraction, fmt::join(data.size, ", "));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) order = data::permutation(count, options.seed);
  const auto cut = std::clamp<std::int64_t>(
      std::llround(*options.train_fraction * static_cast<double>(count)), 1, count - 1);
  data.train =
      std::make_shared<data::Subset>(data.all, std::vector(order.begin(), order.begin() + cut));
  data.valid =
      std::make_shared<data::Subset>(data.all, std::vector(order.begin() + cut, order.end()));
  return data;
}

}  // namespace lockstep::science
