// Converts numbers of a metric to and from the tensors in its state().
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::metric {

// A tensor with a copy of `values`; T is std::int64_t, float or std::uint8_t.
template <typename T>
torch::Tensor tensor_of(std::span<const T> values, torch::IntArrayRef sizes);

// The values of the tensor at `key`. Throws CheckpointError, naming the key and both shapes and
// types, if it is not a tensor of T with these sizes.
template <typename T>
std::vector<T> saved_values(const StateDict& state, std::string_view key, torch::IntArrayRef sizes);

// Sums, as int64 [kWords] for one, or [n, kWords] for several.
torch::Tensor saved_sum(const ExactSum& sum);
torch::Tensor saved_sums(std::span<const ExactSum> sums);
ExactSum read_sum(const StateDict& state, std::string_view key);
std::vector<ExactSum> read_sums(const StateDict& state, std::string_view key, std::int64_t count);

}  // namespace lockstep::metric
