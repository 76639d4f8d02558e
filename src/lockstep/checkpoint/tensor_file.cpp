#include "lockstep/checkpoint/tensor_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/data/finite.h"
#include "lockstep/data/list_dataset.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

using Keys = std::map<std::string, std::string>;

const char* const kFeatures = "features";

// Keys of the batch, and where their tensors are in the file.
Keys keys_of(const TensorFileOptions& options) {
  const TensorFileOptions plain;
  if (!options.keys.empty()) {
    if (options.features != plain.features || options.targets != plain.targets) {
      throw ConfigError(
          "keys: expected keys, or features and targets, got both; write keys: {{features: …}}");
    }
    if (options.transform && !options.keys.contains(kFeatures)) {
      throw ConfigError("transform: it is for the key 'features', which keys does not have");
    }
    return options.keys;
  }
  Keys keys = {{kFeatures, options.features}};
  if (options.targets) keys.emplace("targets", *options.targets);
  return keys;
}

bool is_list(const StateDict& file, const std::string& name) {
  return file.at(name).get_if<StateList>() != nullptr;
}

// The tensors of a list, or the rows of a tensor.
std::vector<torch::Tensor> samples_of(const StateDict& file, const std::string& name) {
  if (!is_list(file, name)) {
    const auto rows = file.get<torch::Tensor>(name);
    if (rows.dim() == 0) throw DataError("'{}': expected a tensor with rows, got a number", name);
    return rows.unbind();
  }
  std::vector<torch::Tensor> samples;
  for (const StateValue& value : file.get<StateList>(name)) {
    const auto* const tensor = value.get_if<torch::Tensor>();
    if (tensor == nullptr) {
      throw DataError("'{}': expected a tensor for each sample, got {} for sample {}", name,
                      value.kind(), samples.size());
    }
    samples.push_back(*tensor);
  }
  return samples;
}

// Throws DataError with the first value that is not finite, and how many there are.
void check_finite(const StateDict& file, const std::string& name) {
  const bool is_in_list = is_list(file, name);
  const std::vector<torch::Tensor> tensors =
      is_in_list ? samples_of(file, name)
                 : std::vector<torch::Tensor>{file.get<torch::Tensor>(name)};
  std::string first;
  std::int64_t count = 0, total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += tensors[i].numel();
    const auto found = find_non_finite(tensors[i]);
    if (!found) continue;
    if (count == 0) {
      first = fmt::format("the value at [{}] {}is {}", fmt::join(found->index, ", "),
                          is_in_list ? fmt::format("of sample {} ", i) : "", found->value);
    }
    count += found->count;
  }
  if (count == 0) return;
  throw DataError(
      "'{}': {}, and {} of {} values are not finite; a model cannot learn from them: repair the "
      "file, or set allow_non_finite to take them as they are",
      name, first, with_thousands(count), with_thousands(total));
}

DatasetPtr with_lists(const StateDict& file, const Keys& keys) {
  std::vector<Batch> samples(samples_of(file, keys.begin()->second).size());
  for (const auto& [key, name] : keys) {
    const std::vector<torch::Tensor> tensors = samples_of(file, name);
    if (tensors.size() != samples.size()) {
      throw DataError("'{}' has {} samples, but '{}' has {}", name, tensors.size(),
                      keys.begin()->second, samples.size());
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) samples[i].set(key, tensors[i]);
  }
  return list_dataset(std::move(samples));
}

DatasetPtr of_rows(const StateDict& file, const Keys& keys, const TransformPtr& transform) {
  std::vector<Column> columns;
  for (const auto& [key, name] : keys) {
    columns.push_back(
        {key, file.get<torch::Tensor>(name), key == kFeatures ? transform : TransformPtr()});
  }
  return tensor_dataset(std::move(columns));
}

}  // namespace

DatasetPtr tensor_file(const TensorFileOptions& options) {
  const Keys keys = keys_of(options);
  // With "path:" in front, an error in a config shows the line of that option.
  return reading<DataError>({.path = options.path, .kind = "path:"}, [&] {
    const StateDict file = checkpoint::from_pickle(read_file(options.path));
    if (!options.allow_non_finite) {
      for (const auto& [key, name] : keys) check_finite(file, name);
    }
    const bool has_lists =
        std::ranges::any_of(keys, [&](const auto& entry) { return is_list(file, entry.second); });
    if (!has_lists) return of_rows(file, keys, options.transform);
    if (options.transform) {
      throw DataError("a transform takes rows of one shape, but the file has a list of tensors");
    }
    return with_lists(file, keys);
  });
}

}  // namespace lockstep::data
