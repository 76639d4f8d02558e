#include "lockstep/train/outputs.h"

#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"

namespace lockstep {

std::size_t Outputs::count() const {
  return is_named_ ? static_cast<std::size_t>(std::distance(named_.begin(), named_.end()))
                   : tensors_.size();
}

const torch::Tensor& Outputs::operator[](std::size_t index) const {
  if (index >= count()) {
    throw ConfigError("output {}: the model returned {}", index, describe());
  }
  return is_named_ ? std::next(named_.begin(), static_cast<std::ptrdiff_t>(index))->second
                   : tensors_[index];
}

const torch::Tensor& Outputs::operator[](std::string_view key) const {
  if (!is_named_) {
    throw ConfigError(
        "output '{}': the model returned {}, which have no names: use a number, or to_batch()", key,
        describe());
  }
  return named_[key];
}

const torch::Tensor& Outputs::tensor() const {
  if (count() != 1) {
    throw ConfigError("model: returned {}, expected one tensor: model.outputs(…) returns all",
                      describe());
  }
  return (*this)[std::size_t{0}];
}

Batch Outputs::to_batch(const std::vector<std::string>& keys) const {
  if (is_named_ && keys.empty()) return named_;
  Batch batch;
  if (is_named_) {
    for (const std::string& key : keys) {
      if (const auto* const list = named_.find_list(key)) {
        batch.set(key, *list);
      } else if (const auto* const nested = named_.find_nested(key)) {
        batch.set(key, *nested);
      } else {
        batch.set(key, named_[key]);
      }
    }
    return batch;
  }
  if (keys.size() != tensors_.size()) {
    throw ConfigError(
        "model: returned {}, but there {} for outputs: {}; expected one for each", describe(),
        keys.size() == 1 ? "is 1 key" : fmt::format("are {} keys", keys.size()), join(keys, ", "));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) batch.set(keys[i], tensors_[i]);
  return batch;
}

std::string Outputs::describe() const {
  if (is_named_) return fmt::format("a batch with {}", join(named_.keys(), ", "));
  std::vector<std::string> parts;
  for (const torch::Tensor& tensor : tensors_) {
    parts.push_back(tensor.defined() ? data::describe(tensor) : "an undefined tensor");
  }
  if (parts.size() == 1) return parts.front();
  return fmt::format("{} tensors{}{}", parts.size(), parts.empty() ? "" : ": ", join(parts, ", "));
}

}  // namespace lockstep
