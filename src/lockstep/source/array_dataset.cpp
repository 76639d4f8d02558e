#include "lockstep/source/array_dataset.h"

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/source/npy_reader.h"
#include "lockstep/source/safetensors.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFeaturesKey = "features";
constexpr std::string_view kTargetsKey = "targets";

// Where an array is. `name` is empty for a file with a single array.
struct ArrayPlace {
  fs::path file;
  std::string name;

  std::string text() const { return name.empty() ? file.string() : file.string() + "#" + name; }
};

bool has_names(const fs::path& file) {
  return file.extension() == ".npz" || file.extension() == ".safetensors";
}

ArrayPlace place_of(const ArrayDatasetOptions& options, const std::string& name) {
  if (!options.file.empty()) return {.file = options.file, .name = name};
  // A name with a # need not mean an array in a file: a folder may have one in its name.
  const std::size_t mark = name.rfind('#');
  if (mark != std::string::npos && has_names(name.substr(0, mark))) {
    return {.file = name.substr(0, mark), .name = name.substr(mark + 1)};
  }
  return {.file = name, .name = ""};
}

torch::Tensor read_array(const ArrayPlace& place) {
  const fs::path& file = place.file;
  if (has_names(file) && place.name.empty()) {
    throw ConfigError("{}: expected the name of an array in it, as in \"{}#x\"", file.string(),
                      file.filename().string());
  }
  if (file.extension() == ".npz") return NpzFile(file).read(place.name, Alignment::kAny);
  if (file.extension() == ".safetensors") {
    return SafetensorsFile(file).read(place.name, Alignment::kAny);
  }
  if (file.extension() == ".npy" && place.name.empty()) return read_npy(file, Alignment::kAny);
  throw ConfigError("{}: expected a file .npy, .npz or .safetensors{}", file.string(),
                    place.name.empty() ? "" : "; only the last two have arrays by name");
}

// Keys of the batch, and where their arrays are.
std::map<std::string, std::string> array_keys(const ArrayDatasetOptions& options) {
  if (options.keys.empty()) {
    if (options.features.empty()) throw ConfigError("features: expected an array, got none");
    std::map<std::string, std::string> keys = {{std::string(kFeaturesKey), options.features}};
    if (options.targets) keys.emplace(kTargetsKey, *options.targets);
    return keys;
  }
  if (!options.features.empty() || options.targets) {
    throw ConfigError(
        "keys: expected keys, or features and targets, got both; write keys: {{features: …}}");
  }
  return options.keys;
}

void check_transforms(const ArrayDatasetOptions& options,
                      const std::map<std::string, std::string>& keys) {
  const auto check = [&](const char* option, const TransformPtr& transform, std::string_view key) {
    if (!transform || keys.contains(std::string(key))) return;
    throw ConfigError("{}: it is for the key '{}', and there is none", option, key);
  };
  check("transform", options.transform, kFeaturesKey);
  check("target_transform", options.target_transform, kTargetsKey);
}

Column column_of(const ArrayDatasetOptions& options, const std::string& key,
                 const std::string& name) {
  const ArrayPlace place = place_of(options, name);
  Column column{.key = key,
                .tensor = read_array(place),
                .transform = {},
                .file = place.text(),
                .allow_non_finite = options.allow_non_finite};
  if (column.tensor.dim() == 0) {
    throw DataError("{}: expected an array with rows, got a single number", column.file);
  }
  if (key == kFeaturesKey) column.transform = options.transform;
  if (key == kTargetsKey) column.transform = options.target_transform;
  return column;
}

}  // namespace

DatasetPtr array_dataset(const ArrayDatasetOptions& options) {
  const auto keys = array_keys(options);
  check_transforms(options, keys);
  std::vector<Column> columns;
  for (const auto& [key, name] : keys) {
    columns.push_back(column_of(options, key, name));
    const Column& first = columns.front();
    const Column& last = columns.back();
    if (last.tensor.size(0) == first.tensor.size(0)) continue;
    throw DataError("{} has {} rows, but {} has {}", last.file, last.tensor.size(0), first.file,
                    first.tensor.size(0));
  }
  return tensor_dataset(std::move(columns));
}

}  // namespace lockstep::data
