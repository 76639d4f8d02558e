#include "lockstep/callback/classification.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/metric/accuracy.h"
#include "lockstep/metric/auc.h"
#include "lockstep/metric/precision_recall.h"
#include "lockstep/train/merge.h"

namespace lockstep {

MetricCallback::MetricCallback(std::unique_ptr<metric::OutputMetric> metric, Keys keys,
                               std::string options)
    : metric_(std::move(metric)), keys_(std::move(keys)), options_(std::move(options)) {
  if (metric_ == nullptr) throw ConfigError("MetricCallback: expected a metric, got none");
}

CallbackTraits MetricCallback::traits() const {
  return {.order = Order::kMetric,
          .uses_gradients = false,
          .changes_batch = false,
          .metric_names = metric_->names()};
}

std::string MetricCallback::agreed_options() const {
  return OptionText()
      .with("input_key", keys_.input_key)
      .with("target_key", keys_.target_key)
      .with("metrics", metric_->names())
      .with("metric", "(" + options_ + ")")
      .str();
}

std::optional<Better> MetricCallback::better(std::string_view metric) const {
  const auto names = metric_->names();
  const bool is_ours = std::ranges::find(names, metric) != names.end();
  return is_ours ? metric_->better(metric) : std::nullopt;
}

void MetricCallback::dry_run(const std::string&, Batch& batch) {
  metric_->reset();
  metric_->update(batch[keys_.input_key], batch[keys_.target_key]);
  metric_->reset();
}

// Does not reset rank 0's metric after a resume inside the pass: it contains the loaded values,
// which are those of all ranks.
void MetricCallback::on_loader_start(State& state) {
  if (state.loader_batch == 0 || !state.comm->is_primary()) metric_->reset();
}

void MetricCallback::on_batch_end(State& state) {
  metric_->begin({.batch = state.loader_batch, .shard = state.shard});
  metric_->update(state.batch[keys_.input_key].detach(), state.batch[keys_.target_key]);
}

void MetricCallback::on_loader_end(State& state) {
  for (const auto& [name, value] : merged(*metric_, *state.comm)) {
    state.loader_metrics[name] = value;
  }
  metric_->reset();  // so that no later checkpoint contains its samples
}

Metrics MetricCallback::values_so_far() const {
  Metrics running = metric_->compute();
  std::erase_if(running, [](const auto& item) { return item.first.ends_with("/std"); });
  return running;
}

void MetricCallback::gather(comm::Communicator& communicator) {
  gather_metric(*metric_, communicator);
}

StateDict MetricCallback::state() const {
  return metric_->state();
}

void MetricCallback::load_state(const StateDict& state) {
  if (state.size() == 0) return metric_->reset();
  metric_->load_state(state);
}

AccuracyCallback::AccuracyCallback(AccuracyCallbackOptions options)
    : MetricCallback(std::make_unique<metric::Accuracy>(
                         metric::AccuracyOptions{.topk = options.topk,
                                                 .num_classes = options.num_classes,
                                                 .prefix = options.prefix,
                                                 .suffix = options.suffix}),
                     {options.input_key, options.target_key},
                     OptionText().with("num_classes", options.num_classes).str()) {}

PrecisionRecallF1SupportCallback::PrecisionRecallF1SupportCallback(
    PrecisionRecallF1SupportCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::PrecisionRecallF1Support>(
              metric::PrecisionRecallF1SupportOptions{.num_classes = options.num_classes,
                                                      .zero_division = options.zero_division,
                                                      .per_class = options.per_class,
                                                      .prefix = options.prefix,
                                                      .suffix = options.suffix}),
          {options.input_key, options.target_key},
          OptionText()
              .with("num_classes", options.num_classes)
              .with("zero_division", options.zero_division)
              .str()) {}

AUCCallback::AUCCallback(AUCCallbackOptions options)
    : MetricCallback(
          std::make_unique<metric::AUC>(metric::AUCOptions{.num_classes = options.num_classes,
                                                           .per_class = options.per_class,
                                                           .prefix = options.prefix,
                                                           .suffix = options.suffix}),
          {options.input_key, options.target_key},
          OptionText().with("num_classes", options.num_classes).str()) {}

}  // namespace lockstep
