#include "lockstep/callback/function_metric.h"

#include "lockstep/metric/batch_function.h"
#include "lockstep/metric/loader_function.h"

namespace lockstep {

BatchFunctionCallback::BatchFunctionCallback(BatchFunctionCallbackOptions options)
    : MetricCallback(std::make_unique<metric::BatchFunction>(
                         metric::BatchFunctionOptions{.name = options.name,
                                                      .function = std::move(options.function),
                                                      .better = options.better}),
                     {options.input_key, options.target_key}) {}

LoaderFunctionCallback::LoaderFunctionCallback(LoaderFunctionCallbackOptions options)
    : MetricCallback(std::make_unique<metric::LoaderFunction>(
                         metric::LoaderFunctionOptions{.name = options.name,
                                                       .function = std::move(options.function),
                                                       .better = options.better}),
                     {options.input_key, options.target_key}) {}

}  // namespace lockstep
