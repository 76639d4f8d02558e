// Data sets of fields and their networks, as targets, and predictions in HDF5.
#include <utility>

#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/scaling.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/recipe/values.h"
#include "lockstep/science/cnn3d.h"
#include "lockstep/science/field_dataset.h"
#include "lockstep/science/hdf5.h"
#include "lockstep/science/hdf5_table.h"
#include "lockstep/science/prepared_fields.h"

namespace lockstep::recipe {

// Which cubes of a field.
enum class FieldSplit { kAll, kTrain, kValid };

}  // namespace lockstep::recipe

namespace lockstep::config {

template <>
struct EnumNames<recipe::FieldSplit> {
  static constexpr std::pair<recipe::FieldSplit, const char*> names[] = {
      {recipe::FieldSplit::kAll, "all"},
      {recipe::FieldSplit::kTrain, "train"},
      {recipe::FieldSplit::kValid, "valid"}};
};

template <>
struct EnumNames<science::ChannelAxis> {
  static constexpr std::pair<science::ChannelAxis, const char*> names[] = {
      {science::ChannelAxis::kAuto, "auto"},
      {science::ChannelAxis::kFirst, "first"},
      {science::ChannelAxis::kLast, "last"}};
};

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

struct FieldOptions : science::Hdf5Options {
  FieldSplit part = FieldSplit::kAll;
};

template <typename T>
config::Field<FieldOptions> field(const char* name, T science::Hdf5Options::*member,
                                  const char* about) {
  return {name, static_cast<T FieldOptions::*>(member), about};
}

// Loaders of different parts of one field share its data. The data is freed with the last of them.
// The list is static because the registry makes each loader separately.
std::shared_ptr<const science::FieldData> field_data(const science::Hdf5Options& options) {
  struct Known {
    science::Hdf5Options options;
    std::weak_ptr<const science::FieldData> data;
  };
  static std::vector<Known> known;
  std::erase_if(known, [](const Known& field) { return field.data.expired(); });
  const auto found = std::ranges::find(known, options, &Known::options);
  if (found != known.end()) {
    if (auto data = found->data.lock()) return data;
  }
  const auto data = std::make_shared<const science::FieldData>(science::hdf5_dataset(options));
  known.push_back({options, data});
  return data;
}

// The transforms of one part. They are taken out of the options, because loaders of one field may
// have different ones.
science::Preparation take_transforms(FieldOptions& options) {
  const auto chain = [&](const data::TransformPtr& last) -> data::TransformPtr {
    if (!options.augment || options.part == FieldSplit::kValid) return last;
    return last ? data::TransformPtr(data::Compose({options.augment, last})) : options.augment;
  };
  science::Preparation preparation{.is_scaled = true,
                                   .transform = chain(options.transform),
                                   .target_transform = chain(options.target_transform)};
  if (preparation.transform || preparation.target_transform) {
    preparation.flat = std::exchange(options.flat, false);  // comes after the transforms
  }
  options.transform = options.target_transform = options.augment = {};
  return preparation;
}

data::DatasetPtr load(FieldOptions options) {
  if (options.part != FieldSplit::kAll && !options.train_fraction) {
    throw ConfigError(
        "train_fraction: expected a number between 0 and 1, because `part` is set, got none");
  }
  // Statistics are those of the training part. Nothing else of `all` depends on the fraction.
  if (options.part == FieldSplit::kAll && options.normalize == data::Normalization::kNone) {
    options.train_fraction.reset();
  }
  science::Preparation preparation = take_transforms(options);
  const auto data = field_data(options);
  const auto& part = options.part == FieldSplit::kValid   ? data->valid
                     : options.part == FieldSplit::kTrain ? data->train
                                                          : data->all;
  const data::DatasetPtr whole = {data, part.get()};  // also owns the data of the other parts
  if (preparation.changes_nothing()) return whole;
  preparation.scaling = data->scaling;
  return science::prepared(whole, preparation);
}

class Hdf5Format : public PredictionFormat {
 public:
  explicit Hdf5Format(std::filesystem::path path) : path_(std::move(path)) {}

  void begin(const std::vector<OutputColumn>& columns) override {
    columns_ = columns;
    writer_.emplace(path_);
    for (const OutputColumn& column : columns_) {
      writer_->add(column.key, column.type, column.shape);
    }
  }

  void write(const std::vector<torch::Tensor>& values) override {
    for (std::size_t i = 0; i < values.size(); ++i) writer_->append(columns_[i].key, values[i]);
  }

  std::vector<std::filesystem::path> finish() override {
    writer_->finish();
    return {path_};
  }

 private:
  std::filesystem::path path_;
  std::vector<OutputColumn> columns_;
  std::optional<science::Hdf5Writer> writer_;
};

}  // namespace

std::unique_ptr<PredictionFormat> hdf5_format(const std::filesystem::path& path) {
  return std::make_unique<Hdf5Format>(path);
}

void add_science(Targets& targets) {
  using H = science::Hdf5Options;
  targets.datasets.add<FieldOptions>(
      "HDF5", "Cubes of simulation fields in HDF5 files.",
      {config::required("path", static_cast<std::string FieldOptions::*>(&H::path),
                        "of the files, with {feature} and {checkpoint:04d} in it"),
       field("checkpoints", &H::checkpoints, "numbers for {checkpoint}"),
       field("time_granularity", &H::time_granularity, "checkpoints are multiplied by it"),
       field("features", &H::features, "names for {feature}, or datasets of the one file"),
       field("feature_labels", &H::feature_labels,
             "dataset of each feature, if it is not its name"),
       field("target", &H::target, "likewise; default: the features themselves"),
       field("target_labels", &H::target_labels, "dataset of each target"),
       field("channel_axis", &H::channel_axis, "where channels are; auto: as the shape tells"),
       field("batch_size", &H::batch_size, "sides of a cube; default: the whole field"),
       field("sample_to", &H::sample_to, "points per side after sampling at equal distances"),
       field("dimensions", &H::dimensions, "of space; default: up to 3"),
       field("flat", &H::flat, "targets as one row"),
       field("train_fraction", &H::train_fraction, "of the cubes; the others are for validation"),
       {"part", &FieldOptions::part, "which cubes this loader has"},
       field("shuffle", &H::shuffle, "the cubes, before they are divided"),
       field("seed", &H::seed, "of the shuffle"),
       field("memory", &H::memory, "fields up to this many bytes are read once and kept"),
       field("allow_non_finite", &H::allow_non_finite, "accept NaN and infinite values"),
       field("normalize", &H::normalize,
             "scales each channel by statistics of the training part, in a loader for evaluation "
             "by those of the train loader; predictions are scaled back"),
       field("scaling", &H::scaling, "statistics to use instead; `lockstep run` records them here"),
       field("transform", &H::transform, "of the features, after they were scaled"),
       field("target_transform", &H::target_transform, "of the targets, likewise"),
       field("augment", &H::augment,
             "before these, of features and targets in the same way; in train loaders only, and "
             "not of part: valid")},
      [](const FieldOptions& o) { return load(o); });
  using T = science::Hdf5TableOptions;
  targets.datasets.add<T>(
      "Hdf5Table", "Rows of datasets in an HDF5 file.",
      {config::required("path", &T::path, "of the file"),
       config::required("features", &T::features, "dataset of the model's input, or several"),
       {"targets", &T::targets, "dataset of the expected output; default: no targets"},
       {"transform", &T::transform, "of the features"},
       {"target_transform", &T::target_transform, "of the targets"},
       {"memory", &T::memory, "tables up to this many bytes are read once and kept"},
       {"allow_non_finite", &T::allow_non_finite, "accept NaN and infinite values"}},
      [](const T& o) { return science::hdf5_table(o); });
  targets.models.add(
      "CNN3d", "The 3-D network for turbulence; sizes are taken from the data.",
      [](const Example& example) {
        if (!example.input.defined()) {
          throw ConfigError("CNN3d takes its sizes from the data, and there is no data");
        }
        science::FieldShape shape{.channels = example.input.size(1),
                                  .size = example.input.sizes().slice(2).vec(),
                                  .outputs = example.batch["targets"].numel()};
        return Model(science::make_cnn3d(shape));
      });
}

}  // namespace lockstep::recipe
