#include "lockstep/callback/criterion.h"

#include "lockstep/base/error.h"

namespace lockstep {

CriterionCallback::CriterionCallback(CriterionCallbackOptions options)
    : options_(std::move(options)) {
  if (!options_.criterion)
    throw ConfigError("CriterionCallback: criterion: expected one, got none");
  if (options_.metric_key == options_.loss_key) {
    throw ConfigError(
        "CriterionCallback: metric_key: '{}' is the loss itself, which the runner "
        "computes; expected another name",
        options_.metric_key);
  }
}

std::optional<std::vector<std::string>> CriterionCallback::metric_names() const {
  const std::string& key = options_.metric_key;
  return std::vector<std::string>{key, key + "/std"};
}

void CriterionCallback::on_run_start(State& state) {
  options_.criterion.to(state.engine->device());
}

void CriterionCallback::on_forward(State& state) {
  const torch::Tensor value =
      options_.criterion(state.batch[options_.input_key], state.batch[options_.target_key]);
  state.batch.set(options_.metric_key, value);
  state.batch_metrics[options_.metric_key] = value.item<double>();
  if (options_.weight == 0) return;
  const torch::Tensor weighted = value * options_.weight;
  state.batch.set(options_.loss_key, state.batch.contains(options_.loss_key)
                                         ? state.batch[options_.loss_key] + weighted
                                         : weighted);
}

}  // namespace lockstep
