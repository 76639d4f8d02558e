// Metrics of maps of classes: IoU, Dice, the Tversky index, the accuracy of pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/metric/class_counts.h"
#include "lockstep/metric/class_maps.h"

namespace lockstep::metric {

// Outputs are scores [N, C, …], or classes [N, …] as integers, where … is H, W or D, H, W or
// anything else. Targets are classes [N, …] or [N, 1, …], or 0 and 1 as [N, C, …]. MapFormat has
// the details.
struct SegmentationOptions {
  // The number of classes. Required; 1 for a map of one class against the background.
  std::int64_t num_classes = 0;
  // Nothing: each position has the class with the highest score. A probability: each class is on
  // its own, and is predicted where its probability is above this. With num_classes 1, nothing is
  // 0.5.
  std::optional<double> threshold = std::nullopt;
  // What the outputs are, with a threshold.
  ScoreKind scores = ScoreKind::kLogits;
  // A target that does not count, 255 for example. Without a threshold, a class that is ignored, 0
  // for example, has no value of its own and is left out of the means over the classes.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  // Whether to report each class in addition to the averages.
  bool per_class = false;
  // Of the classes, for the weighted average. Empty: the numbers of their positions.
  std::vector<double> weights = {};
  // The value of a class that is neither in the targets nor predicted; must be 0 or 1. Catalyst's
  // and ours is 1.
  double zero_division = 1;
  // Put before and after "iou" and so on in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// What the metrics of this file share.
class SegmentationMetric : public CountedMetric {
 public:
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;
  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view) const override { return Better::kLarger; }
  Metrics compute() const override;

 protected:
  SegmentationMetric(std::string name, SegmentationOptions options);

  const SegmentationOptions& options() const { return options_; }
  bool has_labels() const { return !format_.limit; }  // each position has one class

 private:
  // Of one class, or of the sum of all classes.
  virtual double score(const ClassCount& count) const = 0;
  // Which average has the plain name.
  virtual const char* plain_average() const { return "_macro"; }
  std::string name(const std::string& tail = "") const;
  bool is_ignored(std::size_t c) const;  // the class is ignore_index

  std::string name_;
  SegmentationOptions options_;
  MapFormat format_;
};

// right / (right + alpha * missed + beta * wrong), over all positions of the loader: `tversky` and
// `tversky/_macro`, the mean over the classes; `tversky/_micro`, of the counts of all classes
// together; `tversky/_weighted`; with per_class `tversky/class_00`, ...
struct TverskyOptions {
  double alpha = 0.5;  // the weight of positions that are missed, from 0 to 1
  std::optional<double> beta = std::nullopt;  // of those that are wrong; nothing: 1 - alpha
  SegmentationOptions maps = {};
};

class Tversky : public SegmentationMetric {
 public:
  explicit Tversky(TverskyOptions options);

 protected:
  struct Weights {
    double missed, wrong;
  };
  Tversky(std::string name, Weights weights, SegmentationOptions options);

 private:
  double score(const ClassCount& count) const override;

  Weights weights_;
};

// Catalyst's spelling. Its metrics are named tversky, too.
using Trevsky = Tversky;

// `iou`, ...: right / (right + missed + wrong), the Jaccard index.
class IoU final : public Tversky {
 public:
  explicit IoU(SegmentationOptions options) : Tversky("iou", {1, 1}, std::move(options)) {}
};

// `dice`, ...: 2 right / (2 right + missed + wrong), which is the F1 of the positions.
class Dice final : public Tversky {
 public:
  explicit Dice(SegmentationOptions options) : Tversky("dice", {0.5, 0.5}, std::move(options)) {}
};

// `pixel_accuracy` and `pixel_accuracy/_micro`: the share of positions that are right.
// `pixel_accuracy/_macro`, the mean over the classes: without a threshold, of the share of a
// class's positions that are right; with one, of the share of all positions at which a class is
// rightly there or not there. A class without positions counts as zero_division.
class PixelAccuracy final : public SegmentationMetric {
 public:
  explicit PixelAccuracy(SegmentationOptions options)
      : SegmentationMetric("pixel_accuracy", std::move(options)) {}

 private:
  double score(const ClassCount& count) const override;
  const char* plain_average() const override { return "_micro"; }
};

}  // namespace lockstep::metric
