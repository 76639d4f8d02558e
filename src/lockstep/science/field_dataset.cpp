#include "lockstep/science/field_dataset.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/draw_indices.h"
#include "lockstep/data/finite.h"
#include "lockstep/data/sample_error.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/field_statistics.h"
#include "lockstep/science/hdf5.h"
#include "lockstep/science/prepared_fields.h"

namespace lockstep::science {
namespace {

// One dataset of one file: some channels of a checkpoint's field.
struct FieldPart {
  std::shared_ptr<Hdf5File> file;
  std::string label;
  Sizes channels;  // its dimensions that are not those of space
  Sizes size;      // of space
  bool channels_last = false;

  std::string where() const {
    return fmt::format("{}: dataset '{}'", file->path().string(), label);
  }

  std::int64_t channel_count() const {
    return std::accumulate(channels.begin(), channels.end(), std::int64_t{1}, std::multiplies<>());
  }

  // All channels of this block of space, in the order of the file.
  Block with_channels(Block space) const {
    const auto add = [this](Sizes& sizes, const Sizes& of_channels) {
      sizes.insert(channels_last ? sizes.end() : sizes.begin(), of_channels.begin(),
                   of_channels.end());
    };
    add(space.start, Sizes(channels.size(), 0));
    add(space.count, channels);
    add(space.stride, Sizes(channels.size(), 1));
    return space;
  }

  // Values of the file as [C, …], where `space` has the sides of the block.
  torch::Tensor channels_first(const torch::Tensor& values, const Sizes& space) const {
    Sizes shape = space;
    shape.insert(channels_last ? shape.end() : shape.begin(), channel_count());
    const torch::Tensor field = values.reshape(shape);
    return channels_last ? field.movedim(-1, 0).contiguous() : field;
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
  const auto found = data::find_non_finite(values);
  if (!found) return;
  Sizes index;
  for (std::size_t axis = 0; axis < found->index.size(); ++axis) {
    index.push_back(block.start[axis] + found->index[axis] * block.stride[axis]);
  }
  throw DataError(
      "{}: the value at [{}] is {}, and {} of the {} that were read are not finite; a model cannot "
      "learn from them: repair the file, or set allow_non_finite to take them as they are",
      part.where(), fmt::join(index, ", "), found->value, with_thousands(found->count),
      with_thousands(values.numel()));
}

// Names cubes in messages.
struct CubeNames {
  std::vector<std::string> files;  // one per checkpoint
  std::int64_t cubes = 1;          // of each checkpoint

  std::string of(std::int64_t index) const {
    return fmt::format("sample {} (cube {} of {})", index, index % cubes,
                       files.at(static_cast<std::size_t>(index / cubes)));
  }
};

// Cubes that are kept in memory. Their files are not kept open.
class KeptCubes final : public data::TensorDataset {
 public:
  KeptCubes(torch::Tensor features, torch::Tensor targets, CubeNames names)
      : TensorDataset(std::move(features), std::move(targets)), names_(std::move(names)) {}

  std::string name_of(std::int64_t index) const override { return names_.of(index); }

 private:
  CubeNames names_;
};

struct FieldTensors {
  torch::Tensor features, targets;  // [n, C, b, …]; the same tensor if there are no targets
  CubeNames names;

  data::DatasetPtr dataset() const {
    return std::make_shared<const KeptCubes>(features, targets, names);
  }

  // Errors name the cube and the key.
  torch::Tensor scaled(const std::string& key, const torch::Tensor& values,
                       const data::ChannelScaling& scaling) const {
    try {
      return scaling.apply(values);
    } catch (const DataError&) {
      const data::DatasetPtr cubes = dataset();
      for (std::int64_t i = 0; i < values.size(0); ++i) {
        data::naming_sample(*cubes, i, [&] {
          data::naming_key(key, [&] { scaling.apply(values.narrow(0, i, 1)); });
        });
      }
      throw;
    }
  }
};

class CubeDataset final : public data::Dataset {
 public:
  struct Snapshot {
    std::vector<FieldPart> features;
    std::vector<FieldPart> targets;  // none: the features
  };

  CubeDataset(std::vector<Snapshot> snapshots, Grid grid, bool allow_non_finite)
      : snapshots_(std::move(snapshots)),
        grid_(std::move(grid)),
        allow_non_finite_(allow_non_finite) {}

  std::int64_t size() const override {
    return static_cast<std::int64_t>(snapshots_.size()) * grid_.cubes();
  }

  Batch sample(std::int64_t index) const override {
    const Snapshot& snapshot = snapshot_of(index);
    const std::int64_t cube = index % grid_.cubes();
    const torch::Tensor features = read(snapshot.features, cube);
    return {{"features", features},
            {"targets", snapshot.targets.empty() ? features : read(snapshot.targets, cube)}};
  }

  std::string name_of(std::int64_t index) const override { return names().of(index); }

  // Reads all cubes into memory, with one read per dataset.
  FieldTensors in_memory() const {
    std::vector<torch::Tensor> features, targets;
    for (const Snapshot& snapshot : snapshots_) {
      features.push_back(read_all(snapshot.features));
      if (!snapshot.targets.empty()) targets.push_back(read_all(snapshot.targets));
    }
    const torch::Tensor inputs = torch::cat(features);
    return {.features = inputs,
            .targets = targets.empty() ? inputs : torch::cat(targets),
            .names = names()};
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
  CubeNames names() const {
    CubeNames names{.files = {}, .cubes = grid_.cubes()};
    for (const Snapshot& snapshot : snapshots_) {
      names.files.push_back(snapshot.features[0].file->path().string());
    }
    return names;
  }

  const Snapshot& snapshot_of(std::int64_t index) const {
    return snapshots_[static_cast<std::size_t>(index / grid_.cubes())];
  }

  torch::Tensor read_all(const std::vector<FieldPart>& parts) const {
    Block space;
    for (std::size_t i = 0; i < grid_.cube.size(); ++i) {
      space.start.push_back(0);
      space.count.push_back(grid_.cube[i] * grid_.counts[i]);
      space.stride.push_back(grid_.stride);
    }
    return split_cubes(read_space(parts, space), grid_.cube);
  }

  torch::Tensor read(const std::vector<FieldPart>& parts, std::int64_t cube) const {
    Sizes place(grid_.cube.size());
    for (std::size_t i = grid_.cube.size(); i-- > 0;) {
      place[i] = cube % grid_.counts[i];
      cube /= grid_.counts[i];
    }
    Block space;
    for (std::size_t i = 0; i < grid_.cube.size(); ++i) {
      space.start.push_back(place[i] * grid_.cube[i] * grid_.stride);
      space.count.push_back(grid_.cube[i]);
      space.stride.push_back(grid_.stride);
    }
    return read_space(parts, space);
  }

  // The block of space in all parts, as [C, …].
  torch::Tensor read_space(const std::vector<FieldPart>& parts, const Block& space) const {
    std::vector<torch::Tensor> channels;
    for (const FieldPart& part : parts) {
      const Block block = part.with_channels(space);
      const torch::Tensor values = part.file->read(part.label, block);
      if (!allow_non_finite_) require_finite(values, part, block);
      channels.push_back(part.channels_first(values, space.count));
    }
    return torch::cat(channels);
  }

  std::vector<Snapshot> snapshots_;
  Grid grid_;
  bool allow_non_finite_;
};

using Snapshots = std::vector<CubeDataset::Snapshot>;

bool has_feature(const std::string& path) {
  return path.find("{feature}") != std::string::npos;
}

// Where the channels are, if the shape tells: nothing if they could be at both ends. Sides of a
// field are most often equal, and there are few channels.
std::optional<ChannelAxis> find_channel_axis(std::span<const std::int64_t> shape,
                                             std::int64_t space) {
  constexpr std::int64_t kFew = 16;
  const auto count = shape.size() - static_cast<std::size_t>(space);
  if (count == 0) return ChannelAxis::kFirst;
  const auto all_equal = [](std::span<const std::int64_t> sides) {
    return std::ranges::all_of(sides, [&](std::int64_t side) { return side == sides[0]; });
  };
  const auto sides_before = shape.first(shape.size() - count);
  const std::int64_t most_at_end = std::ranges::max(shape.last(count));
  if (all_equal(sides_before) && most_at_end <= kFew && most_at_end < sides_before[0]) {
    return ChannelAxis::kLast;
  }
  const auto sides_after = shape.subspan(count);
  if (space > 1 && all_equal(sides_after)) return ChannelAxis::kFirst;
  if (std::ranges::max(shape.first(count)) <= std::ranges::min(sides_after)) {
    return ChannelAxis::kFirst;
  }
  return shape.back() <= kFew ? std::nullopt : std::optional(ChannelAxis::kFirst);
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
          "{}: expected {} dimensions of space, and up to two of channels before or after them, "
          "got [{}]",
          part.where(), space, fmt::join(shape, ", "));
    }
    if (std::ranges::any_of(shape, [](std::int64_t side) { return side == 0; })) {
      throw DataError("{}: has shape [{}], so it is empty", part.where(), fmt::join(shape, ", "));
    }
    part.channels_last = has_channels_last(part, shape, space);
    const auto middle = part.channels_last ? shape.begin() + space : shape.end() - space;
    part.channels.assign(shape.begin(), middle);
    part.size.assign(middle, shape.end());
    if (part.channels_last) std::swap(part.channels, part.size);
  }

  bool has_channels_last(const FieldPart& part, const Sizes& shape, std::int64_t space) const {
    if (options_.channel_axis != ChannelAxis::kAuto) {
      return options_.channel_axis == ChannelAxis::kLast;
    }
    const auto axis = find_channel_axis(shape, space);
    if (axis) return *axis == ChannelAxis::kLast;
    throw DataError(
        "{}: the shape [{}] does not tell whether channels come first or last; set channel_axis to "
        "first or last",
        part.where(), fmt::join(shape, ", "));
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
  if (options.valid_is_train && options.train_fraction) {
    fail("valid_is_train", "false, because train_fraction leaves cubes for validation");
  }
  if (options.scaling) {
    options.scaling->features.check();
    options.scaling->targets.check();
    const Normalization kind = options.scaling->features.kind;
    if (options.normalize != Normalization::kNone && options.normalize != kind) {
      fail("normalize", fmt::format("{} as scaling has, got {}", data::name_of(kind),
                                    data::name_of(options.normalize)));
    }
  }
}

// How fields of this size are cut. `first` is named in messages.
Grid grid_of(const Hdf5Options& options, Sizes size, const FieldPart& first) {
  Grid grid;
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

// Checks that the parts of each checkpoint belong together. Returns the size that all checkpoints
// have, and warns if some are larger.
Sizes common_size(const Snapshots& snapshots) {
  const FieldPart& first = snapshots[0].features[0];
  Sizes common = first.size;
  bool is_uneven = false;
  for (const auto& snapshot : snapshots) {
    const FieldPart& own = snapshot.features[0];
    for (const auto& part : snapshot.features) check_size(part, own);
    for (const auto& part : snapshot.targets) check_size(part, own);
    check_channels(snapshot.features, snapshots[0].features);
    check_channels(snapshot.targets, snapshots[0].targets);
    if (own.size.size() != common.size()) check_size(own, first);
    is_uneven = is_uneven || own.size != first.size;
    for (std::size_t i = 0; i < common.size(); ++i) common[i] = std::min(common[i], own.size[i]);
  }
  if (is_uneven) {
    warn(fmt::format(
        "{}: has size [{}], and other checkpoints have other sizes: only the first [{}] points of "
        "each are used",
        first.where(), fmt::join(first.size, ", "), fmt::join(common, ", ")));
  }
  return common;
}

// The lengths of the sides of `points` sampled points.
BoxLengths lengths_of(const BoxLengths& box, const Sizes& field, const Sizes& points,
                      std::int64_t stride) {
  BoxLengths lengths;
  for (std::size_t i = 0; i < box.size(); ++i) {
    lengths.push_back(box[i] * static_cast<double>(points[i] * stride) /
                      static_cast<double>(field[i]));
  }
  return lengths;
}

void set_box(const Hdf5Options& options, const Snapshots& snapshots, const Grid& grid,
             FieldData& data) {
  if (options.box.empty()) return;
  const Sizes& field = snapshots[0].features[0].size;
  wave_number_scales(field, options.box);  // throws if it does not fit
  for (const auto& snapshot : snapshots) {
    if (snapshot.features[0].size != field) {
      throw ConfigError(
          "hdf5_dataset: box: expected checkpoints of one size, because it has the lengths of all "
          "of "
          "them; {} has another size",
          snapshot.features[0].where());
    }
  }
  data.box = lengths_of(options.box, field, data.size, grid.stride);
  data.cube_box = lengths_of(options.box, field, data.cube, grid.stride);
}

// Which cubes are for what.
struct Parts {
  std::vector<std::int64_t> train, valid;
};

Parts parts_of(const Hdf5Options& options, std::int64_t count, const Sizes& size) {
  std::vector<std::int64_t> order = data::count_up(count);
  if (!options.train_fraction) return {.train = std::move(order), .valid = {}};
  if (count == 1) {
    throw ConfigError(
        "hdf5_dataset: train_fraction: {} of a single cube leaves nothing for validation; cut the "
        "field of [{}] into smaller cubes with batch_size, add checkpoints, or leave "
        "train_fraction "
        "out",
        *options.train_fraction, fmt::join(size, ", "));
  }
  if (options.shuffle) order = data::permutation(count, options.seed);
  const auto cut = std::clamp<std::int64_t>(
      std::llround(*options.train_fraction * static_cast<double>(count)), 1, count - 1);
  return {.train = std::vector(order.begin(), order.begin() + cut),
          .valid = std::vector(order.begin() + cut, order.end())};
}

data::Scaling scaling_for(const Hdf5Options& options, const data::Dataset& fields,
                          std::vector<std::int64_t> samples, bool has_targets) {
  if (options.scaling) return *options.scaling;
  // In the order of the file, which a streamed field is read in fastest.
  std::ranges::sort(samples);
  data::Scaling scaling;
  scaling.features =
      measure({.fields = fields, .samples = samples, .key = "features"}, options.normalize);
  scaling.targets = has_targets ? measure({.fields = fields, .samples = samples, .key = "targets"},
                                          options.normalize)
                                : scaling.features;
  return scaling;
}

data::TransformPtr after(const data::TransformPtr& first, const data::TransformPtr& second) {
  if (!first || !second) return first ? first : second;
  return data::Compose({first, second});
}

// Makes the data sets of a field whose cubes are `fields`, or `kept` if they are in memory.
void make_parts(const Hdf5Options& options, const Parts& parts, std::optional<FieldTensors> kept,
                data::DatasetPtr fields, FieldData& data) {
  Preparation plain{.scaling = data.scaling,
                    .transform = options.transform,
                    .target_transform = options.target_transform,
                    .flat = options.flat};
  if (kept) {
    // Scaling is the same in every epoch, so it is done once.
    const bool is_same =
        kept->targets.is_same(kept->features) && data.scaling.features == data.scaling.targets;
    kept->features = kept->scaled("features", kept->features, data.scaling.features);
    kept->targets =
        is_same ? kept->features : kept->scaled("targets", kept->targets, data.scaling.targets);
    plain.is_scaled = true;
    if (options.flat && !options.target_transform && !options.augment) {
      kept->targets = kept->targets.flatten(1);
      plain.flat = false;
    }
    fields = kept->dataset();
  }
  Preparation augmented = plain;
  augmented.transform = after(options.augment, options.transform);
  augmented.target_transform = after(options.augment, options.target_transform);
  data.all = prepared(fields, plain);
  if (!options.train_fraction) {
    data.train = options.augment ? prepared(fields, augmented) : data.all;
    if (options.valid_is_train) data.valid = data.all;
    return;
  }
  data.train = prepared(std::make_shared<data::Subset>(fields, parts.train), augmented);
  data.valid = prepared(std::make_shared<data::Subset>(fields, parts.valid), plain);
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
  Snapshots snapshots;
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
  const Sizes common = common_size(snapshots);
  const Grid grid = grid_of(options, common, snapshots[0].features[0]);
  FieldData data{.train = {}, .valid = {}, .all = {}, .size = {}, .cube = grid.cube};
  for (std::size_t i = 0; i < grid.cube.size(); ++i)
    data.size.push_back(grid.counts[i] * grid.cube[i]);
  set_box(options, snapshots, grid, data);
  const auto cubes =
      std::make_shared<CubeDataset>(std::move(snapshots), grid, options.allow_non_finite);
  const Parts parts = parts_of(options, cubes->size(), data.size);
  std::optional<FieldTensors> kept;
  if (cubes->bytes() <= static_cast<double>(options.memory)) kept = cubes->in_memory();
  const data::DatasetPtr fields = kept ? kept->dataset() : cubes;
  data.scaling = scaling_for(options, *fields, parts.train, has_targets);
  make_parts(options, parts, kept, fields, data);
  return data;
}

}  // namespace lockstep::science
