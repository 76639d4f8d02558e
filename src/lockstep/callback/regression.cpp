#include "lockstep/callback/regression.h"

#include "lockstep/base/option_text.h"
#include "lockstep/metric/regression.h"

namespace lockstep {

RegressionCallback::RegressionCallback(RegressionCallbackOptions options)
    : MetricCallback(std::make_unique<metric::Regression>(
                         metric::RegressionOptions{.metrics = options.metrics,
                                                   .num_outputs = options.num_outputs,
                                                   .per_output = options.per_output,
                                                   .prefix = options.prefix,
                                                   .suffix = options.suffix}),
                     {options.input_key, options.target_key},
                     OptionText().with("num_outputs", options.num_outputs).str()) {}

}  // namespace lockstep
