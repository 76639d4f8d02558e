#include "lockstep/callback/batch_transform.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep {

BatchTransformCallback::BatchTransformCallback(BatchTransformCallbackOptions options)
    : options_(std::move(options)) {
  const bool of_batch = options_.batch_transform != nullptr;
  if (of_batch == static_cast<bool>(options_.transform)) {
    throw ConfigError(
        "BatchTransformCallback: expected transform, for one tensor, or batch_transform, for a "
        "whole batch; got {}",
        of_batch ? "both" : "none");
  }
  if (of_batch && !options_.output_key.empty()) {
    throw ConfigError(
        "BatchTransformCallback: output_key '{}': a batch_transform puts its results into the "
        "batch itself; leave it out",
        options_.output_key);
  }
  if (options_.output_key.empty()) options_.output_key = options_.input_key;
}

// Functions and transforms cannot be compared.
std::string BatchTransformCallback::agreed_options() const {
  return OptionText()
      .with("whole_batch", options_.batch_transform != nullptr)
      .with("scope", options_.scope == BatchScope::kForward ? "on_forward" : "on_batch_start")
      .with("input_key", options_.input_key)
      .with("output_key", options_.output_key)
      .str();
}

void BatchTransformCallback::on_batch_start(State& state) {
  if (options_.scope == BatchScope::kBatchStart) apply(state.batch);
}

void BatchTransformCallback::on_forward(State& state) {
  if (options_.scope == BatchScope::kForward) apply(state.batch);
}

void BatchTransformCallback::apply(Batch& batch) const {
  if (options_.batch_transform) {
    options_.batch_transform(batch);
  } else {
    batch.set(options_.output_key, options_.transform.apply(batch[options_.input_key]));
  }
}

}  // namespace lockstep
