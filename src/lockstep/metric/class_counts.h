// How often each class is there, how often it is predicted, and how often both. Precision, recall,
// F1, IoU, Dice, the Tversky index and the accuracy of pixels are ratios of these counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/metric/metric.h"

namespace lockstep::metric {

// The numbers of samples, or of positions in maps, of one class.
struct ClassCount {
  std::int64_t right = 0;      // of the class and predicted as it
  std::int64_t predicted = 0;  // predicted as it
  std::int64_t support = 0;    // of the class
  std::int64_t counted = 0;    // all, also those that are neither

  std::int64_t missed() const { return support - right; }   // false negatives
  std::int64_t wrong() const { return predicted - right; }  // false positives
  std::int64_t agreed() const {                             // true positives and true negatives
    return counted - missed() - wrong();
  }
  ClassCount& operator+=(const ClassCount& other);
};

class ClassCounts {
 public:
  explicit ClassCounts(std::int64_t num_classes);

  // One class at each position: int64 tensors of one shape, with classes below num_classes. A label
  // that equals `ignored` does not count.
  void add_labels(const torch::Tensor& predicted, const torch::Tensor& labels,
                  std::optional<std::int64_t> ignored = std::nullopt);

  // Each class on its own: uint8 [N, num_classes, …] of 0 and 1. An expected value of kIgnored does
  // not count.
  static constexpr std::uint8_t kIgnored = 2;
  void add_flags(const torch::Tensor& predicted, const torch::Tensor& expected);

  const std::vector<ClassCount>& classes() const { return classes_; }
  ClassCount total() const;

  void reset() { classes_.assign(classes_.size(), {}); }
  StateDict state() const;
  void load_state(const StateDict& state) { classes_ = read(state); }
  void merge(const StateDict& other);

 private:
  std::vector<ClassCount> read(const StateDict& state) const;

  std::vector<ClassCount> classes_;
};

// A metric that follows from the counts of classes. A derived class adds to `counts_` in update().
class CountedMetric : public OutputMetric {
 public:
  void reset() override { counts_.reset(); }
  StateDict state() const override { return counts_.state(); }
  void load_state(const StateDict& state) override { counts_.load_state(state); }
  void merge(const StateDict& other) override { counts_.merge(other); }

 protected:
  // Throws ConfigError, which names `metric`, if there is no class.
  CountedMetric(std::int64_t num_classes, std::string_view metric);

  ClassCounts counts_;
};

// "class_00": the tail of the names of metrics of one class.
std::string class_label(std::size_t index);

}  // namespace lockstep::metric
