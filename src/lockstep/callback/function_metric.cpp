#include "lockstep/callback/function_metric.h"

#include "lockstep/metric/batch_function.h"
#include "lockstep/metric/loader_function.h"

namespace lockstep {

BatchFunctionCallback::BatchFunctionCallback(BatchFunctionCallbackOptions options)
    : MetricCallback(std::make_unique<metric::BatchFunction>(
                         metric::BatchFunctionOptions{.name = options.name,
                                                      .function = std::move(options.function),
                                                      .better = options.better}),
                     {options.input_key, options.target_key}),
      input_key_(std::move(options.input_key)),
      target_key_(std::move(options.target_key)) {}

void BatchFunctionCallback::dry_run(const std::string&, Batch& batch) {
  for (const std::string& key : {input_key_, target_key_}) batch[key];  // throws if it is missing
}

LoaderFunctionCallback::LoaderFunctionCallback(LoaderFunctionCallbackOptions options)
    : MetricCallback(std::make_unique<metric::LoaderFunction>(
                         metric::LoaderFunctionOptions{.name = options.name,
                                                       .function = std::move(options.function),
                                                       .better = options.better}),
                     {options.input_key, options.target_key}) {}

}  // namespace lockstep
