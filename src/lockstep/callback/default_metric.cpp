#include "lockstep/callback/default_metric.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/callback/function_metric.h"
#include "lockstep/callback/regression.h"

namespace lockstep {
namespace {

// The share of a sample's numbers that are on the side of the limit where the target is.
CallbackPtr shares_above(double limit, const DefaultMetricCallbackOptions& options) {
  return std::make_shared<BatchFunctionCallback>(BatchFunctionCallbackOptions{
      .input_key = options.input_key,
      .target_key = options.target_key,
      .name = "accuracy",
      .function =
          [limit](const torch::Tensor& outputs, const torch::Tensor& targets) {
            const torch::Tensor right = outputs.gt(limit).eq(targets.gt(0.5));
            return right.reshape({right.size(0), -1}).to(torch::kFloat64).mean(1);
          },
      .better = Better::kLarger});
}

}  // namespace

DefaultMetricCallback::DefaultMetricCallback(DefaultMetricCallbackOptions options)
    : of_classes_(std::make_shared<AccuracyCallback>(AccuracyCallbackOptions{
          .input_key = options.input_key, .target_key = options.target_key})),
      of_logits_(shares_above(0, options)),
      of_probabilities_(shares_above(0.5, options)),
      of_numbers_(std::make_shared<RegressionCallback>(RegressionCallbackOptions{
          .input_key = options.input_key, .target_key = options.target_key})),
      options_(std::move(options)) {}

// The metrics' names depend on the criterion, so they are not known here.
CallbackTraits DefaultMetricCallback::traits() const {
  return {.order = Order::kMetric, .uses_gradients = false, .changes_batch = false};
}

std::string DefaultMetricCallback::agreed_options() const {
  return OptionText()
      .with("input_key", options_.input_key)
      .with("target_key", options_.target_key)
      .str();
}

std::optional<Better> DefaultMetricCallback::better(std::string_view metric) const {
  for (const auto& callback : {of_classes_, of_logits_, of_numbers_}) {
    if (const auto better = callback->better(metric)) return better;
  }
  return std::nullopt;
}

Metrics DefaultMetricCallback::running_metrics() const {
  return chosen_ == nullptr ? Metrics() : chosen_->running_metrics();
}

const std::shared_ptr<Callback>& DefaultMetricCallback::choose(const Criterion& criterion) const {
  const std::string name = criterion.describe();
  const auto is_any = [&](std::initializer_list<const char*> losses) {
    for (const char* const loss : losses) {
      if (name.starts_with(fmt::format("torch::nn::{}(", loss))) return true;
    }
    return false;
  };
  if (is_any({"CrossEntropyLoss", "NLLLoss"})) return of_classes_;
  if (is_any({"BCEWithLogitsLoss"})) return of_logits_;
  if (is_any({"BCELoss"})) return of_probabilities_;
  if (is_any({"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"})) return of_numbers_;
  throw ConfigError(
      "DefaultMetricCallback: there is no usual metric for the criterion '{}'; expected one of "
      "CrossEntropyLoss, NLLLoss, BCEWithLogitsLoss, BCELoss, MSELoss, L1Loss, SmoothL1Loss and "
      "HuberLoss, or name the metric's own callback",
      name);
}

void DefaultMetricCallback::check(const State& state) const {
  choose(state.criterion);
}

void DefaultMetricCallback::on_run_start(State& state) {
  chosen_ = choose(state.criterion);
  if (loaded_.size() > 0) chosen_->load_state(std::exchange(loaded_, StateDict()));
}

// A run loads the state before it starts, when the metric is not chosen yet.
void DefaultMetricCallback::load_state(const StateDict& state) {
  loaded_ = state;
  if (chosen_ != nullptr) chosen_->load_state(state);
}

StateDict DefaultMetricCallback::state() const {
  return chosen_ == nullptr ? StateDict() : chosen_->state();
}

}  // namespace lockstep
