// A batch: tensors by name. The loader fills in "features" and "targets", the runner adds "logits"
// and "loss", and callbacks read the tensors that their options name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep {

class Batch {
 public:
  using Entry = std::pair<std::string, torch::Tensor>;

  Batch() = default;
  Batch(std::initializer_list<Entry> entries) : entries_(entries) {}

  // Throws ConfigError, which suggests the nearest key, if `key` is not in the batch.
  const torch::Tensor& operator[](std::string_view key) const;

  void set(std::string_view key, torch::Tensor tensor);
  void erase(std::string_view key);  // does nothing if it is not there
  bool contains(std::string_view key) const;
  std::vector<std::string> keys() const;
  bool empty() const { return entries_.empty(); }

  // The number of samples in the batch: the first dimension of the first tensor.
  std::int64_t size() const;

  Batch to(torch::Device device) const;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep
