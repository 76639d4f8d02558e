#include "lockstep/metric/auc.h"

#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/roc.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

std::string class_tail(std::int64_t index) {
  return fmt::format("/class_{:02}", index);
}

// Contiguous float32 [N, C] without NaN.
torch::Tensor checked_scores(const torch::Tensor& outputs) {
  const torch::Tensor scores =
      to_scores(outputs.dim() == 1 ? outputs.unsqueeze(1) : outputs).to(torch::kFloat32);
  const auto values = elements<float>(scores);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i])) continue;
    const auto classes = static_cast<std::size_t>(scores.size(1));
    throw DataError("auc: outputs: the score of class {} is NaN in sample {}", i % classes,
                    i / classes);
  }
  return scores;
}

// Appends one row per sample: 1 at its label and 0 elsewhere, or the 0s and 1s of the targets.
void append_positives(const torch::Tensor& targets, std::int64_t classes,
                      std::vector<std::uint8_t>& positive) {
  const auto offset = static_cast<std::int64_t>(positive.size());
  if (classes > 1 && is_one_a_sample(targets)) {
    const torch::Tensor labels = to_labels(targets, classes);
    positive.resize(positive.size() + static_cast<std::size_t>(labels.numel() * classes), 0);
    std::int64_t row = offset;
    for (const std::int64_t label : elements<std::int64_t>(labels)) {
      positive[static_cast<std::size_t>(row + label)] = 1;
      row += classes;
    }
    return;
  }
  if (targets.numel() != targets.size(0) * classes || targets.dim() > 2) {
    throw DataError("auc: targets: expected the shape [{0}] or [{0}, {1}], got [{2}]",
                    targets.size(0), classes, fmt::join(targets.sizes(), ", "));
  }
  const torch::Tensor flags = targets.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  std::vector<std::uint8_t> rows;
  for (const double flag : elements<double>(flags)) {
    if (flag != 0 && flag != 1) {
      throw DataError("auc: targets: sample {} is {}, expected 0 or 1",
                      static_cast<std::int64_t>(rows.size()) / classes, flag);
    }
    rows.push_back(flag == 1);
  }
  positive.insert(positive.end(), rows.begin(), rows.end());
}

}  // namespace

AUC::AUC(AUCOptions options) : options_(std::move(options)) {
  if (options_.num_classes && *options_.num_classes < 1) {
    throw ConfigError("auc: num_classes: expected 1 or more, got {}", *options_.num_classes);
  }
  if (options_.per_class && !options_.num_classes) {
    throw ConfigError("auc: per_class: needs num_classes, for the names of the metrics");
  }
  reset();
}

void AUC::reset() {
  samples_ = {.classes = options_.num_classes, .scores = {}, .positive = {}};
}

void AUC::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const torch::Tensor scores = checked_scores(outputs);
  const std::int64_t classes = scores.size(1);
  if (classes != samples_.classes.value_or(classes)) {
    throw DataError("auc: outputs: expected scores of {} classes, got {}", *samples_.classes,
                    classes);
  }
  append_positives(targets, classes, samples_.positive);
  const auto values = elements<float>(scores);
  samples_.scores.insert(samples_.scores.end(), values.begin(), values.end());
  samples_.classes = classes;
}

std::string AUC::name(const std::string& tail) const {
  return options_.prefix + "auc" + options_.suffix + tail;
}

std::vector<std::string> AUC::names() const {
  std::vector<std::string> names = {name(), name("/_micro"), name("/_macro"), name("/_weighted")};
  for (std::int64_t c = 0; options_.per_class && c < *options_.num_classes; ++c) {
    names.push_back(name(class_tail(c)));
  }
  return names;
}

Metrics AUC::compute() const {
  const std::int64_t classes = samples_.classes.value_or(0);
  std::vector<float> positives, negatives;
  // The area over every `step`-th pair from `start`: the column of a class, or all pairs.
  const auto area = [&](std::size_t start, std::size_t step) {
    positives.clear();
    negatives.clear();
    for (std::size_t i = start; i < samples_.scores.size(); i += step) {
      (samples_.positive[i] ? positives : negatives).push_back(samples_.scores[i]);
    }
    return roc_area(positives, negatives);
  };

  Metrics metrics;
  double sum = 0, weighted = 0, defined = 0, weight = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const double value = area(static_cast<std::size_t>(c), static_cast<std::size_t>(classes));
    if (options_.per_class) metrics[name(class_tail(c))] = value;
    if (std::isnan(value)) continue;
    const auto support = static_cast<double>(positives.size());
    sum += value;
    defined += 1;
    weighted += value * support;
    weight += support;
  }
  // 0 / 0 gives the NaN that is documented if no class has an AUC
  metrics[name()] = metrics[name("/_macro")] = sum / defined;
  metrics[name("/_weighted")] = weighted / weight;
  metrics[name("/_micro")] = area(0, 1);
  return metrics;
}

StateDict AUC::state() const {
  const std::int64_t classes = samples_.classes.value_or(0);
  const auto size = static_cast<std::int64_t>(samples_.scores.size());
  const std::vector<std::int64_t> sizes = {classes == 0 ? 0 : size / classes, classes};
  return {{"num_classes", classes},
          {"scores", tensor_of<float>(samples_.scores, sizes)},
          {"positive", tensor_of<std::uint8_t>(samples_.positive, sizes)}};
}

AUC::ScoredSamples AUC::read(const StateDict& state, std::optional<std::int64_t> expected) {
  const auto classes = state.get<std::int64_t>("num_classes");
  if (classes != 0 && classes != expected.value_or(classes)) {
    throw CheckpointError("auc: num_classes: expected {}, found {}", *expected, classes);
  }
  const auto scores = state.get<torch::Tensor>("scores");
  const std::int64_t samples = scores.defined() && scores.dim() == 2 ? scores.size(0) : 0;
  ScoredSamples read = {
      .classes = expected,
      .scores = saved_values<float>(state, "scores", {samples, classes}),
      .positive = saved_values<std::uint8_t>(state, "positive", {samples, classes})};
  // A rank without a batch does not know the number of classes. Its state has 0.
  if (classes != 0) read.classes = classes;
  return read;
}

void AUC::load_state(const StateDict& state) {
  samples_ = read(state, options_.num_classes);
}

void AUC::merge(const StateDict& other) {
  const ScoredSamples theirs = read(other, samples_.classes);
  samples_.classes = theirs.classes;
  samples_.scores.insert(samples_.scores.end(), theirs.scores.begin(), theirs.scores.end());
  samples_.positive.insert(samples_.positive.end(), theirs.positive.begin(), theirs.positive.end());
}

}  // namespace lockstep::metric
