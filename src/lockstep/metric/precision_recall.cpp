#include "lockstep/metric/precision_recall.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

std::string class_name(std::size_t index) {
  return fmt::format("class_{:02}", index);
}

}  // namespace

PrecisionRecallF1Support::PrecisionRecallF1Support(PrecisionRecallF1SupportOptions options)
    : options_(std::move(options)) {
  if (options_.num_classes < 1) {
    throw ConfigError("precision, recall, f1: num_classes: expected 1 or more, got {}",
                      options_.num_classes);
  }
  if (options_.zero_division != 0 && options_.zero_division != 1) {
    throw ConfigError("precision, recall, f1: zero_division: expected 0 or 1, got {}",
                      options_.zero_division);
  }
  reset();
}

void PrecisionRecallF1Support::reset() {
  classes_.assign(static_cast<std::size_t>(options_.num_classes), {});
}

void PrecisionRecallF1Support::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const torch::Tensor predictions = predicted_classes(outputs, options_.num_classes);
  const torch::Tensor labels = to_labels(targets, options_.num_classes);
  const auto predicted = elements<std::int64_t>(predictions);
  const auto expected = elements<std::int64_t>(labels);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Counts& counts = classes_[static_cast<std::size_t>(expected[i])];
    ++counts.support;
    counts.right += predicted[i] == expected[i];
    ++classes_[static_cast<std::size_t>(predicted[i])].predicted;
  }
}

PrecisionRecallF1Support::Scores PrecisionRecallF1Support::score(const Counts& counts) const {
  const auto ratio = [this](std::int64_t part, std::int64_t whole) {
    if (whole == 0) return options_.zero_division;
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  return {.precision = ratio(counts.right, counts.predicted),
          .recall = ratio(counts.right, counts.support),
          .f1 = ratio(2 * counts.right, counts.predicted + counts.support)};
}

std::string PrecisionRecallF1Support::name(const char* metric, const std::string& average) const {
  return fmt::format("{}{}{}/{}", options_.prefix, metric, options_.suffix, average);
}

std::optional<Better> PrecisionRecallF1Support::better(std::string_view metric) const {
  // Support is a number of samples, so neither direction is better.
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (metric == name("support", class_name(c))) return std::nullopt;
  }
  return Better::kLarger;
}

std::vector<std::string> PrecisionRecallF1Support::names() const {
  std::vector<std::string> averages = {"_micro", "_macro", "_weighted"};
  if (options_.per_class) {
    for (std::size_t c = 0; c < classes_.size(); ++c) averages.push_back(class_name(c));
  }
  std::vector<std::string> names;
  for (const char* metric : {"precision", "recall", "f1"}) {
    for (const std::string& average : averages) names.push_back(name(metric, average));
  }
  if (options_.per_class) {
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      names.push_back(name("support", class_name(c)));
    }
  }
  return names;
}

Metrics PrecisionRecallF1Support::compute() const {
  Metrics metrics;
  const auto report = [&](const std::string& average, const Scores& scores) {
    metrics[name("precision", average)] = scores.precision;
    metrics[name("recall", average)] = scores.recall;
    metrics[name("f1", average)] = scores.f1;
  };
  const auto add = [](Scores& sum, const Scores& scores, double weight) {
    sum.precision += scores.precision * weight;
    sum.recall += scores.recall * weight;
    sum.f1 += scores.f1 * weight;
  };
  const auto divide = [](const Scores& sum, double by) -> Scores {
    return {sum.precision / by, sum.recall / by, sum.f1 / by};
  };

  Counts all;
  Scores sum{}, weighted_sum{};
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const Counts& counts = classes_[c];
    const Scores scores = score(counts);
    all.right += counts.right;
    all.predicted += counts.predicted;
    all.support += counts.support;
    add(sum, scores, 1);
    add(weighted_sum, scores, static_cast<double>(counts.support));
    if (options_.per_class) {
      report(class_name(c), scores);
      metrics[name("support", class_name(c))] = static_cast<double>(counts.support);
    }
  }
  const Scores micro = score(all);
  report("_micro", micro);
  report("_macro", divide(sum, static_cast<double>(classes_.size())));
  report("_weighted",
         all.support == 0 ? micro : divide(weighted_sum, static_cast<double>(all.support)));
  return metrics;
}

StateDict PrecisionRecallF1Support::state() const {
  std::vector<std::int64_t> counts;
  for (const auto& [right, predicted, support] : classes_) {
    counts.insert(counts.end(), {right, predicted, support});
  }
  return {{"counts", tensor_of<std::int64_t>(counts, {options_.num_classes, 3})}};
}

std::vector<PrecisionRecallF1Support::Counts> PrecisionRecallF1Support::read(
    const StateDict& state) const {
  const auto saved = saved_values<std::int64_t>(state, "counts", {options_.num_classes, 3});
  std::vector<Counts> classes;
  for (std::size_t i = 0; i < saved.size(); i += 3) {
    classes.push_back({saved[i], saved[i + 1], saved[i + 2]});
  }
  return classes;
}

void PrecisionRecallF1Support::load_state(const StateDict& state) {
  classes_ = read(state);
}

void PrecisionRecallF1Support::merge(const StateDict& other) {
  const std::vector<Counts> theirs = read(other);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    classes_[c].right += theirs[c].right;
    classes_[c].predicted += theirs[c].predicted;
    classes_[c].support += theirs[c].support;
  }
}

}  // namespace lockstep::metric
