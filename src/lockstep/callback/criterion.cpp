#include "lockstep/callback/criterion.h"

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

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

CallbackTraits CriterionCallback::traits() const {
  const std::string& key = options_.metric_key;
  return {.order = Order::kMetric,
          .uses_gradients = false,
          .changes_batch = false,
          .metric_names = std::vector<std::string>{key, key + "/std"}};
}

std::string CriterionCallback::agreed_options() const {
  return OptionText()
      .with("criterion", options_.criterion.describe())
      .with("input_key", options_.input_key)
      .with("target_key", options_.target_key)
      .with("metric_key", options_.metric_key)
      .with("weight", options_.weight)
      .with("loss_key", options_.loss_key)
      .str();
}

std::optional<Better> CriterionCallback::better(std::string_view metric) const {
  return metric == options_.metric_key ? std::optional(Better::kSmaller) : std::nullopt;
}

void CriterionCallback::dry_run(const std::string&, Batch& batch) {
  const torch::Tensor& outputs = batch[options_.input_key];
  options_.criterion.to(outputs.device());
  const torch::Tensor& targets = batch[options_.target_key];
  // A function may have captured anything, so it is called in the run only.
  batch.set(options_.metric_key, options_.criterion.is_module()
                                     ? options_.criterion(outputs, targets)
                                     : torch::zeros({}));
}

void CriterionCallback::on_run_start(State& state) {
  options_.criterion.to(state.engine->device());
}

void CriterionCallback::on_forward(State& state) {
  const torch::Tensor& outputs = state.batch[options_.input_key];
  const torch::Tensor& targets = state.batch[options_.target_key];
  const LossOver over = options_.criterion.over(outputs, targets);
  // As in SupervisedRunner: a mean over nothing would be NaN.
  const torch::Tensor value =
      over == mean_over(0) ? (outputs * 0).sum() : options_.criterion(outputs, targets);
  state.batch.set(options_.metric_key, value);
  state.set_metric(options_.metric_key, value.item<double>(), over);
  if (options_.weight == 0) return;
  const torch::Tensor weighted = value * options_.weight;
  if (options_.loss_key == state.loss_key) {
    state.add_loss(weighted, over);
  } else {  // a number of the user, which is not the trained loss
    state.batch.set(options_.loss_key, state.batch.contains(options_.loss_key)
                                           ? state.batch[options_.loss_key] + weighted
                                           : weighted);
  }
}

}  // namespace lockstep
