// Metrics of maps of classes, over each loader: IoU, Dice, the Tversky index, the accuracy of
// pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/callback/classification.h"
#include "lockstep/metric/scores.h"

namespace lockstep {

// Shapes: see metric::SegmentationOptions.
struct SegmentationCallbackOptions {
  std::string input_key = "logits";    // scores [N, C, …], or classes [N, …] as integers
  std::string target_key = "targets";  // classes [N, …], or 0 and 1 as [N, C, …]
  std::int64_t num_classes = 0;        // required; 1: one class against the background
  // Nothing: the class with the highest score. A probability: each class is on its own.
  std::optional<double> threshold = std::nullopt;
  metric::ScoreKind scores = metric::ScoreKind::kLogits;    // the kind of the outputs
  std::optional<std::int64_t> ignore_index = std::nullopt;  // a target that does not count
  bool per_class = false;                                   // each class, not only the averages
  std::vector<double> weights = {};  // of the classes; default: their numbers of positions
  double zero_division = 1;          // of a class that is neither there nor predicted
  std::string prefix = "";           // before and after the metric's name
  std::string suffix = "";
};

// `iou`, which is `iou/_macro`, `iou/_micro`, `iou/_weighted`.
class IOUCallback : public MetricCallback {
 public:
  explicit IOUCallback(SegmentationCallbackOptions options);
};

// The same of `dice`.
class DiceCallback : public MetricCallback {
 public:
  explicit DiceCallback(SegmentationCallbackOptions options);
};

// `pixel_accuracy`, which is `pixel_accuracy/_micro`, `pixel_accuracy/_macro`, `…/_weighted`.
class PixelAccuracyCallback : public MetricCallback {
 public:
  explicit PixelAccuracyCallback(SegmentationCallbackOptions options);
};

struct TverskyCallbackOptions {
  double alpha = 0.5;  // the weight of positions that are missed, from 0 to 1
  std::optional<double> beta = std::nullopt;  // of those that are wrong; default: 1 - alpha
  SegmentationCallbackOptions maps = {};
};

// The same of `tversky`.
class TverskyCallback : public MetricCallback {
 public:
  explicit TverskyCallback(TverskyCallbackOptions options);
};

// Catalyst's spelling.
using TrevskyCallback = TverskyCallback;

}  // namespace lockstep
