// A model's outputs and the targets, checked once and laid out for raw loops.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <torch/types.h>

namespace lockstep::metric {

// Each to_...() gives the tensor itself where it can be read as it is, otherwise a converted copy,
// and throws DataError, with the index and the value that are wrong, for what does not fit.

// [N, C] scores as contiguous float32 or float64 on the CPU: float64 stays, other types become
// float32, integers float64.
torch::Tensor to_scores(const torch::Tensor& outputs);

// [N] or [N, 1] integers as contiguous int64 on the CPU, each in [0, num_classes) if that is given.
torch::Tensor to_labels(const torch::Tensor& targets, std::optional<std::int64_t> num_classes);

// [N] or [N, 1] outputs that are class indices already, as integers or whole floats; like
// to_labels.
torch::Tensor to_predictions(const torch::Tensor& outputs, std::optional<std::int64_t> num_classes);

// The class that each sample is predicted to be: for [N, C] scores the one with the highest, the
// first of equals; else to_predictions(). DataError for a NaN score, which has no highest.
torch::Tensor predicted_classes(const torch::Tensor& outputs, std::int64_t num_classes);

// [N] and [N, 1] outputs hold one number a sample, which is a prediction and not a score.
bool is_one_a_sample(const torch::Tensor& outputs);

// DataError unless both hold the same number of samples.
void expect_same_samples(const torch::Tensor& outputs, const torch::Tensor& targets);

// The elements of a contiguous CPU tensor, which must outlive the span.
template <typename T>
std::span<const T> elements(const torch::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace lockstep::metric
