#include "lockstep/metric/predictions.h"

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

bool is_integral(const torch::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// Conversions are skipped if they would change nothing, because a call into torch costs more than
// counting a small batch.
torch::Tensor dense(const torch::Tensor& tensor, torch::ScalarType type) {
  if (tensor.is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous()) return tensor;
  return tensor.detach().to(torch::kCPU, type).contiguous();
}

void expect_range(const torch::Tensor& labels, std::optional<std::int64_t> num_classes,
                  const char* what) {
  if (!num_classes) return;
  std::int64_t index = 0;
  for (const std::int64_t label : elements<std::int64_t>(labels)) {
    if (label < 0 || label >= *num_classes) {
      throw DataError("{}: sample {} is {}, expected a class from 0 to {}", what, index, label,
                      *num_classes - 1);
    }
    ++index;
  }
}

template <typename T>
torch::Tensor argmax(const torch::Tensor& scores) {
  const std::int64_t samples = scores.size(0), classes = scores.size(1);
  torch::Tensor result = torch::empty({samples}, torch::kInt64);
  auto* best = result.data_ptr<std::int64_t>();
  const T* row = scores.data_ptr<T>();
  for (std::int64_t i = 0; i < samples; ++i, row += classes) {
    best[i] = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      if (std::isnan(row[c])) {
        throw DataError("outputs: the score of class {} is NaN in sample {}", c, i);
      }
      if (row[c] > row[best[i]]) best[i] = c;
    }
  }
  return result;
}

constexpr double kLargestWhole = 0x1p53;  // above it, not every integer is a double

// Converts whole floats to integers.
torch::Tensor whole(const torch::Tensor& outputs) {
  const torch::Tensor values = dense(outputs, torch::kFloat64);
  std::int64_t index = 0;
  for (const double value : elements<double>(values)) {
    if (!(std::trunc(value) == value && std::abs(value) < kLargestWhole)) {
      throw DataError(
          "outputs: sample {} is {}, expected the index of a class (outputs with one number per "
          "sample are predictions, not scores)",
          index, value);
    }
    ++index;
  }
  return values.to(torch::kInt64);
}

}  // namespace

torch::Tensor to_scores(const torch::Tensor& outputs) {
  if (outputs.dim() != 2 || outputs.size(1) < 1) {
    throw DataError("outputs: expected the shape [samples, classes], got {}", shape_of(outputs));
  }
  const bool wide = outputs.scalar_type() == torch::kFloat64 || is_integral(outputs);
  return dense(outputs, wide ? torch::kFloat64 : torch::kFloat32);
}

torch::Tensor to_labels(const torch::Tensor& targets, std::optional<std::int64_t> num_classes) {
  if (!is_one_a_sample(targets)) {
    throw DataError("targets: expected the shape [samples], got {}", shape_of(targets));
  }
  if (!is_integral(targets)) {
    throw DataError("targets: expected integers, got {}", c10::toString(targets.scalar_type()));
  }
  torch::Tensor labels = dense(targets, torch::kInt64);
  expect_range(labels, num_classes, "targets");
  return labels;
}

torch::Tensor to_predictions(const torch::Tensor& outputs,
                             std::optional<std::int64_t> num_classes) {
  torch::Tensor predictions = is_integral(outputs) ? dense(outputs, torch::kInt64) : whole(outputs);
  expect_range(predictions, num_classes, "outputs");
  return predictions;
}

torch::Tensor predicted_classes(const torch::Tensor& outputs, std::int64_t num_classes) {
  if (is_one_a_sample(outputs)) return to_predictions(outputs, num_classes);
  const torch::Tensor scores = to_scores(outputs);
  if (scores.size(1) != num_classes) {
    throw DataError("outputs: expected scores of {} classes, got the shape {}", num_classes,
                    shape_of(outputs));
  }
  return scores.scalar_type() == torch::kFloat64 ? argmax<double>(scores) : argmax<float>(scores);
}

bool is_one_a_sample(const torch::Tensor& outputs) {
  return outputs.dim() == 1 || (outputs.dim() == 2 && outputs.size(1) == 1);
}

void expect_same_samples(const torch::Tensor& outputs, const torch::Tensor& targets) {
  if (outputs.dim() == 0 || targets.dim() == 0 || outputs.size(0) != targets.size(0)) {
    throw DataError("outputs {} and targets {}: expected the same number of samples",
                    shape_of(outputs), shape_of(targets));
  }
}

}  // namespace lockstep::metric
