#include "lockstep/metric/batch_function.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"

namespace lockstep::metric {

BatchFunction::BatchFunction(BatchFunctionOptions options)
    : SampleMeans({options.name}, options.better), options_(std::move(options)) {
  if (options_.name.empty()) throw ConfigError("BatchFunction: name: expected a name, got ''");
  if (!options_.function) {
    throw ConfigError("BatchFunction '{}': function: expected a function, got none", options_.name);
  }
}

void BatchFunction::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  expect_same_samples(outputs, targets);
  const std::int64_t samples = targets.size(0);
  if (samples == 0) return;
  const torch::Tensor result = options_.function(outputs, targets);
  if (!result.defined()) {
    throw DataError("metric '{}': its function returned an undefined tensor", options_.name);
  }
  const torch::Tensor values = result.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  if (is_one_a_sample(values) && values.size(0) == samples) {
    add(0, elements<double>(values));
  } else if (values.numel() == 1) {
    add_mean(0, values.item<double>(), samples);
  } else {
    throw DataError(
        "metric '{}': its function returned the shape [{}] for {} samples, expected one number or "
        "one per sample",
        options_.name, fmt::join(values.sizes(), ", "), samples);
  }
}

}  // namespace lockstep::metric
