#include "lockstep/callback/probability.h"

#include "lockstep/base/option_text.h"
#include "lockstep/metric/calibration.h"
#include "lockstep/metric/log_loss.h"

namespace lockstep {

LogLossCallback::LogLossCallback(LogLossCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::LogLoss>(metric::LogLossOptions{
              .scores = options.scores, .prefix = options.prefix, .suffix = options.suffix}),
          {options.input_key, options.target_key},
          OptionText().with("scores", name_of(options.scores)).str()) {}

CalibrationErrorCallback::CalibrationErrorCallback(CalibrationErrorCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::CalibrationError>(
              metric::CalibrationErrorOptions{.bins = options.bins,
                                              .scores = options.scores,
                                              .prefix = options.prefix,
                                              .suffix = options.suffix}),
          {options.input_key, options.target_key},
          OptionText().with("scores", name_of(options.scores)).with("bins", options.bins).str()) {}

}  // namespace lockstep
