#include "lockstep/callback/multilabel.h"

#include "lockstep/base/option_text.h"
#include "lockstep/metric/multilabel_accuracy.h"
#include "lockstep/metric/precision_recall.h"

namespace lockstep {
namespace {

template <typename Options>
OptionText text_of_threshold(const Options& options) {
  return OptionText().with("scores", name_of(options.scores)).with("threshold", options.threshold);
}

}  // namespace

BinaryAccuracyCallback::BinaryAccuracyCallback(BinaryAccuracyCallbackOptions options)
    : MetricCallback(std::make_unique<metric::MultilabelAccuracy>(
                         metric::MultilabelAccuracyOptions{.num_classes = 1,
                                                           .scores = options.scores,
                                                           .threshold = options.threshold,
                                                           .prefix = options.prefix,
                                                           .suffix = options.suffix}),
                     {options.input_key, options.target_key}, text_of_threshold(options).str()) {}

MultilabelAccuracyCallback::MultilabelAccuracyCallback(MultilabelAccuracyCallbackOptions options)
    : MetricCallback(std::make_unique<metric::MultilabelAccuracy>(
                         metric::MultilabelAccuracyOptions{.num_classes = options.num_classes,
                                                           .scores = options.scores,
                                                           .threshold = options.threshold,
                                                           .prefix = options.prefix,
                                                           .suffix = options.suffix}),
                     {options.input_key, options.target_key},
                     text_of_threshold(options).with("num_classes", options.num_classes).str()) {}

BinaryPrecisionRecallF1SupportCallback::BinaryPrecisionRecallF1SupportCallback(
    BinaryPrecisionRecallF1SupportCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::MultilabelPrecisionRecallF1Support>(
              metric::MultilabelPrecisionRecallF1SupportOptions{
                  .num_classes = 1,
                  .scores = options.scores,
                  .threshold = options.threshold,
                  .zero_division = options.zero_division,
                  .prefix = options.prefix,
                  .suffix = options.suffix}),
          {options.input_key, options.target_key},
          text_of_threshold(options).with("zero_division", options.zero_division).str()) {}

MultilabelPrecisionRecallF1SupportCallback::MultilabelPrecisionRecallF1SupportCallback(
    MultilabelPrecisionRecallF1SupportCallbackOptions options)
    : MetricCallback(std::make_unique<metric::MultilabelPrecisionRecallF1Support>(
                         metric::MultilabelPrecisionRecallF1SupportOptions{
                             .num_classes = options.num_classes,
                             .scores = options.scores,
                             .threshold = options.threshold,
                             .zero_division = options.zero_division,
                             .per_class = options.per_class,
                             .prefix = options.prefix,
                             .suffix = options.suffix}),
                     {options.input_key, options.target_key},
                     text_of_threshold(options)
                         .with("num_classes", options.num_classes)
                         .with("zero_division", options.zero_division)
                         .str()) {}

}  // namespace lockstep
