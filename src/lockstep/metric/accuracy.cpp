#include "lockstep/metric/accuracy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

AccuracyOptions resolve(AccuracyOptions options) {
  const auto classes = options.num_classes;
  if (classes && *classes < 1) {
    throw ConfigError("accuracy: num_classes: expected 1 or more, got {}", *classes);
  }
  if (options.topk.empty()) {
    options.topk = {1};
    if (classes && *classes > 3) options.topk.push_back(3);
    if (classes && *classes > 5) options.topk.push_back(5);
  }
  for (const std::int64_t k : options.topk) {
    if (k < 1) throw ConfigError("accuracy: topk: expected 1 or more, got {}", k);
    if (classes && k > *classes) {
      throw ConfigError("accuracy: topk: expected at most num_classes = {}, got {}", *classes, k);
    }
    if (std::ranges::count(options.topk, k) > 1) {
      throw ConfigError("accuracy: topk: expected each k once, got {} twice", k);
    }
  }
  return options;
}

// How many classes rank before the target's; the largest number if its score is NaN.
template <typename T>
std::int64_t rank_of(const T* row, std::int64_t target, std::int64_t classes) {
  const T score = row[target];
  if (std::isnan(score)) return std::numeric_limits<std::int64_t>::max();
  // The negations count NaN as higher, and keep the loops free of branches.
  std::int64_t rank = 0;
  for (std::int64_t c = 0; c < target; ++c) rank += !(row[c] < score);
  for (std::int64_t c = target + 1; c < classes; ++c) rank += !(row[c] <= score);
  return rank;
}

// Adds to right[i] the samples whose target is among the topk[i] best.
template <typename T>
void count_right(const torch::Tensor& scores, const torch::Tensor& labels,
                 const std::vector<std::int64_t>& topk, std::vector<std::int64_t>& right) {
  const std::int64_t classes = scores.size(1);
  const T* row = scores.data_ptr<T>();
  for (const std::int64_t label : elements<std::int64_t>(labels)) {
    const std::int64_t rank = rank_of(row, label, classes);
    for (std::size_t i = 0; i < topk.size(); ++i) right[i] += rank < topk[i];
    row += classes;
  }
}

}  // namespace

Accuracy::Accuracy(AccuracyOptions options)
    : options_(resolve(std::move(options))), tallies_(options_.topk.size()) {}

void Accuracy::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const std::int64_t samples = targets.size(0);
  std::vector<std::int64_t> right(options_.topk.size(), 0);
  if (is_one_a_sample(outputs)) {
    const torch::Tensor predictions = to_predictions(outputs, options_.num_classes);
    const torch::Tensor labels = to_labels(targets, options_.num_classes);
    const auto predicted = elements<std::int64_t>(predictions);
    const auto expected = elements<std::int64_t>(labels);
    std::int64_t equal = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) equal += predicted[i] == expected[i];
    std::ranges::fill(right, equal);
  } else {
    const torch::Tensor scores = to_scores(outputs);
    const std::int64_t classes = scores.size(1);
    const std::int64_t wanted = options_.num_classes.value_or(classes);
    if (classes != wanted || classes < std::ranges::max(options_.topk)) {
      throw DataError("accuracy: outputs have {} classes, expected {}", classes,
                      options_.num_classes
                          ? std::to_string(wanted)
                          : fmt::format("{} or more, for topk", std::ranges::max(options_.topk)));
    }
    const torch::Tensor labels = to_labels(targets, classes);
    if (scores.scalar_type() == torch::kFloat64) {
      count_right<double>(scores, labels, options_.topk, right);
    } else {
      count_right<float>(scores, labels, options_.topk, right);
    }
  }
  for (std::size_t i = 0; i < right.size() && samples > 0; ++i) {
    tallies_[i].right += right[i];
    tallies_[i].batches.add(static_cast<double>(right[i]) / static_cast<double>(samples), samples);
  }
}

std::string Accuracy::name(std::int64_t k) const {
  return fmt::format("{}accuracy{:02}{}", options_.prefix, k, options_.suffix);
}

std::vector<std::string> Accuracy::names() const {
  std::vector<std::string> names;
  for (const std::int64_t k : options_.topk) {
    names.push_back(name(k));
    names.push_back(name(k) + "/std");
  }
  return names;
}

std::optional<Better> Accuracy::better(std::string_view name) const {
  return name.ends_with("/std") ? std::nullopt : std::optional(Better::kLarger);
}

void Accuracy::reset() {
  tallies_.assign(options_.topk.size(), {});
}

Metrics Accuracy::compute() const {
  Metrics metrics;
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const auto& [right, batches] = tallies_[i];
    const std::string name = this->name(options_.topk[i]);
    // 0 / 0 gives the NaN that is documented for no samples
    metrics[name] = static_cast<double>(right) / static_cast<double>(batches.samples());
    metrics[name + "/std"] = batches.std();
  }
  return metrics;
}

StateDict Accuracy::state() const {
  std::vector<std::int64_t> right;
  StateList batches;
  for (const Tally& tally : tallies_) {
    right.push_back(tally.right);
    batches.emplace_back(tally.batches.state());
  }
  const auto size = static_cast<std::int64_t>(right.size());
  return {{"topk", tensor_of<std::int64_t>(options_.topk, {size})},
          {"right", tensor_of<std::int64_t>(right, {size})},
          {"batches", std::move(batches)}};
}

std::vector<Accuracy::Tally> Accuracy::read(const StateDict& state) const {
  const auto size = static_cast<std::int64_t>(options_.topk.size());
  const auto topk = saved_values<std::int64_t>(state, "topk", {size});
  if (topk != options_.topk) {
    throw CheckpointError("accuracy: topk: expected [{}], found [{}]",
                          fmt::join(options_.topk, ", "), fmt::join(topk, ", "));
  }
  const auto right = saved_values<std::int64_t>(state, "right", {size});
  const auto batches = state.get<StateList>("batches");
  if (batches.size() != topk.size()) {
    throw CheckpointError("accuracy: batches: expected {} entries, found {}", topk.size(),
                          batches.size());
  }
  std::vector<Tally> tallies;
  for (std::size_t i = 0; i < topk.size(); ++i) {
    const auto* moments = batches[i].get_if<StateDict>();
    if (!moments) {
      throw CheckpointError("accuracy: batches[{}]: expected a dictionary, found {}", i,
                            batches[i].kind());
    }
    tallies.push_back({right[i], Moments::from_state(*moments)});
  }
  return tallies;
}

void Accuracy::load_state(const StateDict& state) {
  tallies_ = read(state);
}

void Accuracy::merge(const StateDict& other) {
  const std::vector<Tally> theirs = read(other);
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    tallies_[i].right += theirs[i].right;
    tallies_[i].batches.merge(theirs[i].batches);
  }
}

}  // namespace lockstep::metric
