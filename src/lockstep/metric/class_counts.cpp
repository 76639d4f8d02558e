#include "lockstep/metric/class_counts.h"

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

std::int64_t checked(std::int64_t num_classes, std::string_view metric) {
  if (num_classes >= 1) return num_classes;
  throw ConfigError("{}: num_classes: expected 1 or more, got {}", metric, num_classes);
}

}  // namespace

ClassCount& ClassCount::operator+=(const ClassCount& other) {
  right += other.right;
  predicted += other.predicted;
  support += other.support;
  counted += other.counted;
  return *this;
}

ClassCounts::ClassCounts(std::int64_t num_classes)
    : classes_(static_cast<std::size_t>(num_classes)) {}

void ClassCounts::add_labels(const torch::Tensor& predicted, const torch::Tensor& labels,
                             std::optional<std::int64_t> ignored) {
  const auto found = elements<std::int64_t>(predicted);
  const auto expected = elements<std::int64_t>(labels);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == ignored) continue;
    ++counted;
    ClassCount& count = classes_[static_cast<std::size_t>(expected[i])];
    ++count.support;
    count.right += found[i] == expected[i];
    ++classes_[static_cast<std::size_t>(found[i])].predicted;
  }
  for (ClassCount& count : classes_) count.counted += counted;
}

void ClassCounts::add_flags(const torch::Tensor& predicted, const torch::Tensor& expected) {
  const auto size = static_cast<std::size_t>(predicted.numel());
  const std::size_t rows = static_cast<std::size_t>(predicted.size(0)) * classes_.size();
  const std::size_t positions = rows == 0 ? 0 : size / rows;
  const auto* found = predicted.data_ptr<std::uint8_t>();
  const auto* wanted = expected.data_ptr<std::uint8_t>();
  for (std::size_t row = 0; row < rows; ++row, found += positions, wanted += positions) {
    ClassCount sum;
    for (std::size_t i = 0; i < positions; ++i) {
      const bool counts = wanted[i] != kIgnored;
      sum.counted += counts;
      sum.support += wanted[i] == 1;
      sum.predicted += counts && found[i] == 1;
      sum.right += wanted[i] == 1 && found[i] == 1;
    }
    classes_[row % classes_.size()] += sum;
  }
}

ClassCount ClassCounts::total() const {
  ClassCount total;
  for (const ClassCount& count : classes_) total += count;
  return total;
}

StateDict ClassCounts::state() const {
  std::vector<std::int64_t> counts, counted;
  for (const ClassCount& count : classes_) {
    counts.insert(counts.end(), {count.right, count.predicted, count.support});
    counted.push_back(count.counted);
  }
  const auto size = static_cast<std::int64_t>(classes_.size());
  return {{"counts", tensor_of<std::int64_t>(counts, {size, 3})},
          {"counted", tensor_of<std::int64_t>(counted, {size})}};
}

std::vector<ClassCount> ClassCounts::read(const StateDict& state) const {
  const auto size = static_cast<std::int64_t>(classes_.size());
  const auto counts = saved_values<std::int64_t>(state, "counts", {size, 3});
  std::vector<ClassCount> classes;
  std::int64_t support = 0;
  for (std::size_t i = 0; i < counts.size(); i += 3) {
    classes.push_back({counts[i], counts[i + 1], counts[i + 2]});
    support += counts[i + 2];
  }
  // Older checkpoints have only metrics for which each sample is of one class.
  std::vector<std::int64_t> counted(classes.size(), support);
  if (state.contains("counted")) counted = saved_values<std::int64_t>(state, "counted", {size});
  for (std::size_t c = 0; c < classes.size(); ++c) classes[c].counted = counted[c];
  return classes;
}

void ClassCounts::merge(const StateDict& other) {
  const std::vector<ClassCount> theirs = read(other);
  for (std::size_t c = 0; c < classes_.size(); ++c) classes_[c] += theirs[c];
}

CountedMetric::CountedMetric(std::int64_t num_classes, std::string_view metric)
    : counts_(checked(num_classes, metric)) {}

std::string class_label(std::size_t index) {
  return fmt::format("class_{:02}", index);
}

}  // namespace lockstep::metric
