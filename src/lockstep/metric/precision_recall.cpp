#include "lockstep/metric/precision_recall.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {
namespace {

constexpr const char* kRatios = "precision, recall, f1";

}  // namespace

PrecisionRecallRatios::PrecisionRecallRatios(PrecisionRecallF1SupportOptions options,
                                             Averages averages)
    : CountedMetric(options.num_classes, kRatios),
      options_(std::move(options)),
      averages_(averages) {
  if (options_.zero_division != 0 && options_.zero_division != 1) {
    throw ConfigError("{}: zero_division: expected 0 or 1, got {}", kRatios,
                      options_.zero_division);
  }
}

PrecisionRecallRatios::Scores PrecisionRecallRatios::score(const ClassCount& count) const {
  const auto ratio = [this](std::int64_t part, std::int64_t whole) {
    if (whole == 0) return options_.zero_division;
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  return {.precision = ratio(count.right, count.predicted),
          .recall = ratio(count.right, count.support),
          .f1 = ratio(2 * count.right, count.predicted + count.support)};
}

std::string PrecisionRecallRatios::name(const char* metric, const std::string& average) const {
  return fmt::format("{}{}{}{}{}", options_.prefix, metric, options_.suffix,
                     average.empty() ? "" : "/", average);
}

std::optional<Better> PrecisionRecallRatios::better(std::string_view metric) const {
  // Support is a number of samples, so neither direction is better.
  if (metric == name("support", "")) return std::nullopt;
  for (std::size_t c = 0; c < counts_.classes().size(); ++c) {
    if (metric == name("support", class_label(c))) return std::nullopt;
  }
  return Better::kLarger;
}

std::vector<std::string> PrecisionRecallRatios::names() const {
  std::vector<std::string> averages, classes;
  if (averages_ == Averages::kNone) {
    averages = {""};
    if (options_.per_class) classes = {""};
  } else {
    averages = {"_micro", "_macro", "_weighted"};
    for (std::size_t c = 0; options_.per_class && c < counts_.classes().size(); ++c) {
      classes.push_back(class_label(c));
    }
    averages.insert(averages.end(), classes.begin(), classes.end());
  }
  std::vector<std::string> names;
  for (const char* metric : {"precision", "recall", "f1"}) {
    for (const std::string& average : averages) names.push_back(name(metric, average));
  }
  for (const std::string& tail : classes) names.push_back(name("support", tail));
  return names;
}

Metrics PrecisionRecallRatios::compute() const {
  Metrics metrics;
  const auto report = [&](const std::string& average, const Scores& scores) {
    metrics[name("precision", average)] = scores.precision;
    metrics[name("recall", average)] = scores.recall;
    metrics[name("f1", average)] = scores.f1;
  };
  const auto report_class = [&](const std::string& tail, const ClassCount& count) {
    report(tail, score(count));
    if (options_.per_class) metrics[name("support", tail)] = static_cast<double>(count.support);
  };
  const auto add = [](Scores& sum, const Scores& scores, double weight) {
    sum.precision += scores.precision * weight;
    sum.recall += scores.recall * weight;
    sum.f1 += scores.f1 * weight;
  };
  const auto divide = [](const Scores& sum, double by) -> Scores {
    return {sum.precision / by, sum.recall / by, sum.f1 / by};
  };

  const std::vector<ClassCount>& classes = counts_.classes();
  if (averages_ == Averages::kNone) {
    report_class("", classes.front());
    return metrics;
  }
  Scores sum{}, weighted_sum{};
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const Scores scores = score(classes[c]);
    add(sum, scores, 1);
    add(weighted_sum, scores, static_cast<double>(classes[c].support));
    if (options_.per_class) report_class(class_label(c), classes[c]);
  }
  const ClassCount all = counts_.total();
  const Scores micro = score(all);
  report("_micro", micro);
  report("_macro", divide(sum, static_cast<double>(classes.size())));
  report("_weighted",
         all.support == 0 ? micro : divide(weighted_sum, static_cast<double>(all.support)));
  return metrics;
}

PrecisionRecallF1Support::PrecisionRecallF1Support(PrecisionRecallF1SupportOptions options)
    : PrecisionRecallRatios(std::move(options), Averages::kAll) {}

void PrecisionRecallF1Support::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const torch::Tensor predictions = predicted_classes(outputs, options().num_classes);
  counts_.add_labels(predictions, to_labels(targets, options().num_classes));
}

MultilabelPrecisionRecallF1Support::MultilabelPrecisionRecallF1Support(
    MultilabelPrecisionRecallF1SupportOptions options)
    : PrecisionRecallRatios({.num_classes = options.num_classes,
                             .zero_division = options.zero_division,
                             .per_class = options.per_class,
                             .prefix = options.prefix,
                             .suffix = options.suffix},
                            options.num_classes == 1 ? Averages::kNone : Averages::kAll),
      format_{.num_classes = options.num_classes,
              .limit = score_limit(options.scores, options.threshold, kRatios),
              .metric = kRatios} {}

void MultilabelPrecisionRecallF1Support::update(const torch::Tensor& outputs,
                                                const torch::Tensor& targets) {
  count_maps(counts_, outputs, targets, format_);
}

}  // namespace lockstep::metric
