#include "lockstep/metric/segmentation.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

SegmentationOptions checked_maps(SegmentationOptions options, const std::string& name) {
  if (options.zero_division != 0 && options.zero_division != 1) {
    throw ConfigError("{}: zero_division: expected 0 or 1, got {}", name, options.zero_division);
  }
  const auto given = static_cast<std::int64_t>(options.weights.size());
  if (given != 0 && given != options.num_classes) {
    throw ConfigError("{}: weights: expected num_classes = {} numbers, got {}", name,
                      options.num_classes, given);
  }
  double sum = 0;
  for (const double weight : options.weights) {
    if (!(weight >= 0) || std::isinf(weight)) {
      throw ConfigError("{}: weights: expected 0 or more, got {}", name, weight);
    }
    sum += weight;
  }
  if (given != 0 && sum == 0) throw ConfigError("{}: weights: expected one above 0", name);
  if (options.num_classes == 1 && !options.threshold) options.threshold = 0.5;
  return options;
}

MapFormat format_of(const SegmentationOptions& options, const std::string& name) {
  MapFormat format{
      .num_classes = options.num_classes, .ignore_index = options.ignore_index, .metric = name};
  if (options.threshold) format.limit = score_limit(options.scores, *options.threshold, name);
  return format;
}

TverskyOptions checked_weights(TverskyOptions options) {
  if (!options.beta) options.beta = 1 - options.alpha;
  for (const auto& [name, value] : {std::pair("alpha", options.alpha), {"beta", *options.beta}}) {
    if (!(value >= 0 && value <= 1)) {
      throw ConfigError("tversky: {}: expected a number from 0 to 1, got {}", name, value);
    }
  }
  return options;
}

}  // namespace

SegmentationMetric::SegmentationMetric(std::string name, SegmentationOptions options)
    : CountedMetric(options.num_classes, name),
      name_(std::move(name)),
      options_(checked_maps(std::move(options), name_)),
      format_(format_of(options_, name_)) {}

void SegmentationMetric::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  count_maps(counts_, outputs, targets, format_);
}

std::string SegmentationMetric::name(const std::string& tail) const {
  return fmt::format("{}{}{}{}{}", options_.prefix, name_, options_.suffix, tail.empty() ? "" : "/",
                     tail);
}

// With a threshold, ignore_index may be a value of a flag instead of a class.
bool SegmentationMetric::is_ignored(std::size_t c) const {
  return has_labels() && options_.ignore_index == static_cast<std::int64_t>(c);
}

std::vector<std::string> SegmentationMetric::names() const {
  std::vector<std::string> names = {name(), name("_micro"), name("_macro"), name("_weighted")};
  for (std::size_t c = 0; options_.per_class && c < counts_.classes().size(); ++c) {
    if (!is_ignored(c)) names.push_back(name(class_label(c)));
  }
  return names;
}

Metrics SegmentationMetric::compute() const {
  const std::vector<ClassCount>& classes = counts_.classes();
  Metrics metrics;
  double sum = 0, weighted = 0, weights = 0, counted = 0;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    if (is_ignored(c)) continue;
    const double value = score(classes[c]);
    const double weight =
        options_.weights.empty() ? static_cast<double>(classes[c].support) : options_.weights[c];
    if (options_.per_class) metrics[name(class_label(c))] = value;
    sum += value;
    ++counted;
    weighted += value * weight;
    weights += weight;
  }
  metrics[name("_micro")] = score(counts_.total());
  metrics[name("_macro")] = sum / counted;
  metrics[name("_weighted")] = weights == 0 ? options_.zero_division : weighted / weights;
  metrics[name()] = metrics[name(plain_average())];
  return metrics;
}

Tversky::Tversky(TverskyOptions options)
    : Tversky("tversky", {options.alpha, checked_weights(options).beta.value()}, options.maps) {}

Tversky::Tversky(std::string name, Weights weights, SegmentationOptions options)
    : SegmentationMetric(std::move(name), std::move(options)), weights_(weights) {}

double Tversky::score(const ClassCount& count) const {
  const auto right = static_cast<double>(count.right);
  const double all = right + weights_.missed * static_cast<double>(count.missed()) +
                     weights_.wrong * static_cast<double>(count.wrong());
  // A class that is there, or predicted, does not count as absent even if its errors weigh nothing.
  const bool is_absent = count.support == 0 && count.predicted == 0;
  if (all == 0) return is_absent ? options().zero_division : 0;
  return right / all;
}

double PixelAccuracy::score(const ClassCount& count) const {
  const std::int64_t part = has_labels() ? count.right : count.agreed();
  const std::int64_t whole = has_labels() ? count.support : count.counted;
  if (whole == 0) return options().zero_division;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace lockstep::metric
