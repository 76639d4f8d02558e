#include "lockstep/metric/confusion_matrix.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {

ConfusionMatrix::ConfusionMatrix(ConfusionMatrixOptions options) : options_(options) {
  if (options_.num_classes < 1) {
    throw ConfigError("confusion matrix: num_classes: expected 1 or more, got {}",
                      options_.num_classes);
  }
  reset();
}

void ConfusionMatrix::reset() {
  counts_.assign(static_cast<std::size_t>(options_.num_classes * options_.num_classes), 0);
}

void ConfusionMatrix::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const torch::Tensor predictions = predicted_classes(outputs, options_.num_classes);
  const torch::Tensor labels = to_labels(targets, options_.num_classes);
  const auto predicted = elements<std::int64_t>(predictions);
  const auto expected = elements<std::int64_t>(labels);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ++counts_[static_cast<std::size_t>(expected[i] * options_.num_classes + predicted[i])];
  }
}

torch::Tensor ConfusionMatrix::counts() const {
  return tensor_of<std::int64_t>(counts_, {options_.num_classes, options_.num_classes});
}

torch::Tensor ConfusionMatrix::values() const {
  torch::Tensor values = counts().to(torch::kFloat64);
  if (options_.normalized) values /= values.sum(1, /*keepdim=*/true).clamp_min(1);
  return values;
}

StateDict ConfusionMatrix::state() const {
  return {{"counts", counts()}};
}

void ConfusionMatrix::load_state(const StateDict& state) {
  counts_ =
      saved_values<std::int64_t>(state, "counts", {options_.num_classes, options_.num_classes});
}

void ConfusionMatrix::merge(const StateDict& other) {
  const auto theirs =
      saved_values<std::int64_t>(other, "counts", {options_.num_classes, options_.num_classes});
  std::ranges::transform(counts_, theirs, counts_.begin(), std::plus<>());
}

}  // namespace lockstep::metric
