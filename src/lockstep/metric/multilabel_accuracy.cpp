#include "lockstep/metric/multilabel_accuracy.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {
namespace {

std::vector<std::string> multilabel_names(const MultilabelAccuracyOptions& options) {
  if (options.num_classes < 1) {
    throw ConfigError("accuracy: num_classes: expected 1 or more, got {}", options.num_classes);
  }
  std::vector<std::string> names = {options.prefix + "accuracy" + options.suffix};
  if (options.num_classes > 1) names.push_back(options.prefix + "exact_match" + options.suffix);
  return names;
}

}  // namespace

MultilabelAccuracy::MultilabelAccuracy(MultilabelAccuracyOptions options)
    : SampleMeans(multilabel_names(options), Better::kLarger),
      format_{.num_classes = options.num_classes,
              .limit = score_limit(options.scores, options.threshold, "accuracy"),
              .metric = "accuracy"} {}

void MultilabelAccuracy::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  const FlagMaps maps = read_flags(outputs, targets, format_);
  const std::int64_t samples = maps.predicted.size(0);
  if (samples == 0) return;
  const std::int64_t size = maps.predicted.numel() / samples;
  const auto predicted = elements<std::uint8_t>(maps.predicted);
  const auto expected = elements<std::uint8_t>(maps.expected);
  std::int64_t right = 0, whole = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto from = static_cast<std::size_t>(i * size);
    std::int64_t of_sample = 0;
    for (std::size_t j = from; j < from + static_cast<std::size_t>(size); ++j) {
      of_sample += predicted[j] == expected[j];
    }
    right += of_sample;
    whole += of_sample == size;
  }
  add_share(0, right, maps.predicted.numel());
  if (format_.num_classes > 1) add_share(1, whole, samples);
}

}  // namespace lockstep::metric
