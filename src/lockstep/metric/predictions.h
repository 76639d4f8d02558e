// Checks a model's outputs and the targets once and lays them out for raw loops.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <torch/types.h>

namespace lockstep::metric {

// Each to_...() returns the tensor itself if it can be read as it is, otherwise a converted copy.
// It throws DataError, with the wrong index and value, for a tensor that does not fit.

// Returns [N, C] scores as contiguous float32 or float64 on the CPU. float64 stays, integers become
// float64, other types become float32.
torch::Tensor to_scores(const torch::Tensor& outputs);

// Returns [N] or [N, 1] integers as contiguous int64 on the CPU, each in [0, num_classes) if that
// is given.
torch::Tensor to_labels(const torch::Tensor& targets, std::optional<std::int64_t> num_classes);

// The same for [N] or [N, 1] outputs that are class indices already, as integers or whole floats.
torch::Tensor to_predictions(const torch::Tensor& outputs, std::optional<std::int64_t> num_classes);

// The predicted class of each sample: for [N, C] scores the class with the highest score, the first
// one of equals; else to_predictions(). Throws DataError for a NaN score, because there is no
// highest one then.
torch::Tensor predicted_classes(const torch::Tensor& outputs, std::int64_t num_classes);

// Whether outputs are [N] or [N, 1]: one number per sample, which is a prediction and not a score.
bool is_one_a_sample(const torch::Tensor& outputs);

// Throws DataError unless both have the same number of samples.
void expect_same_samples(const torch::Tensor& outputs, const torch::Tensor& targets);

// The elements of a contiguous CPU tensor, which must outlive the span.
template <typename T>
std::span<const T> elements(const torch::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace lockstep::metric
