#include "lockstep/callback/segmentation.h"

#include "lockstep/base/option_text.h"
#include "lockstep/metric/segmentation.h"

namespace lockstep {
namespace {

metric::SegmentationOptions map_options(const SegmentationCallbackOptions& options) {
  return {.num_classes = options.num_classes,
          .threshold = options.threshold,
          .scores = options.scores,
          .ignore_index = options.ignore_index,
          .per_class = options.per_class,
          .weights = options.weights,
          .zero_division = options.zero_division,
          .prefix = options.prefix,
          .suffix = options.suffix};
}

OptionText map_text(const SegmentationCallbackOptions& options) {
  return OptionText()
      .with("num_classes", options.num_classes)
      .with("threshold", options.threshold)
      .with("scores", name_of(options.scores))
      .with("ignore_index", options.ignore_index)
      .with("weights", options.weights)
      .with("zero_division", options.zero_division);
}

}  // namespace

IOUCallback::IOUCallback(SegmentationCallbackOptions options)
    : MetricCallback(std::make_unique<metric::IoU>(map_options(options)),
                     {options.input_key, options.target_key}, map_text(options).str()) {}

DiceCallback::DiceCallback(SegmentationCallbackOptions options)
    : MetricCallback(std::make_unique<metric::Dice>(map_options(options)),
                     {options.input_key, options.target_key}, map_text(options).str()) {}

PixelAccuracyCallback::PixelAccuracyCallback(SegmentationCallbackOptions options)
    : MetricCallback(std::make_unique<metric::PixelAccuracy>(map_options(options)),
                     {options.input_key, options.target_key}, map_text(options).str()) {}

TverskyCallback::TverskyCallback(TverskyCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::Tversky>(metric::TverskyOptions{
              .alpha = options.alpha, .beta = options.beta, .maps = map_options(options.maps)}),
          {options.maps.input_key, options.maps.target_key},
          map_text(options.maps).with("alpha", options.alpha).with("beta", options.beta).str()) {}

}  // namespace lockstep
