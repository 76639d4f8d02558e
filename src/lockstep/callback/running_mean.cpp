#include "lockstep/callback/running_mean.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/train/merge.h"

namespace lockstep {
namespace {

std::string running_name(const std::string& metric) {
  return "running_" + metric;
}

// The weight of a shard: how many samples, or what else its number is a mean over.
double weight_of(const State& state, const std::string& metric) {
  LossOver over;
  const auto said = state.said.metrics.find(metric);
  if (metric == state.loss_key) {
    over = state.loss_over();
  } else if (said != state.said.metrics.end()) {
    over = said->second;
  }
  const bool weighted = over.kind == LossOver::Kind::kWeight;
  return weighted ? over.weight : static_cast<double>(state.samples());
}

}  // namespace

RunningMeanCallback::RunningMeanCallback(RunningMeanCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.metrics.empty()) {
    throw ConfigError("RunningMeanCallback: metrics: expected one or more");
  }
  for (const std::string& metric : options_.metrics) {
    if (std::ranges::count(options_.metrics, metric) > 1) {
      throw ConfigError("RunningMeanCallback: metrics: expected each once, got '{}' twice", metric);
    }
    means_.emplace_back(
        metric::RunningMeanOptions{.name = running_name(metric), .window = options_.window});
  }
}

CallbackTraits RunningMeanCallback::traits() const {
  std::vector<std::string> names;
  for (const std::string& metric : options_.metrics) names.push_back(running_name(metric));
  return {.order = Order::kMetric,
          .uses_gradients = false,
          .changes_batch = false,
          .metric_names = std::move(names)};
}

std::string RunningMeanCallback::agreed_options() const {
  return OptionText()
      .with("metrics", options_.metrics)
      .with("window", options_.window)
      .with("train_only", options_.train_only)
      .str();
}

// Only that of the loss is known here: smaller.
std::optional<Better> RunningMeanCallback::better(std::string_view metric) const {
  const bool is_ours = std::ranges::find(options_.metrics, "loss") != options_.metrics.end();
  return is_ours && metric == "running_loss" ? std::optional(Better::kSmaller) : std::nullopt;
}

Metrics RunningMeanCallback::running_metrics() const {
  Metrics metrics;
  for (const metric::RunningMean& mean : means_) {
    if (is_active_) metrics.merge(mean.compute());
  }
  return metrics;
}

void RunningMeanCallback::check(const State& state) const {
  if (!state.known_metrics) return;
  for (const std::string& metric : options_.metrics) {
    if (std::ranges::find(*state.known_metrics, metric) != state.known_metrics->end()) continue;
    throw ConfigError("RunningMeanCallback: metrics: there is no metric '{}'; {}", metric,
                      suggest(metric, *state.known_metrics));
  }
}

// As in MetricCallback: after a resume inside a pass, rank 0 has the loaded values.
void RunningMeanCallback::on_loader_start(State& state) {
  is_active_ = takes_part(state);
  if (state.loader_batch > 0 && state.comm->is_primary()) return;
  for (metric::RunningMean& mean : means_) mean.reset();
}

void RunningMeanCallback::on_batch_end(State& state) {
  if (!is_active_) return;
  for (std::size_t i = 0; i < means_.size(); ++i) {
    const auto found = state.batch_metrics.find(options_.metrics[i]);
    if (found == state.batch_metrics.end()) continue;  // nothing in the batch counts
    means_[i].update(state.loader_batch, {.value = found->second,
                                          .weight = weight_of(state, found->first),
                                          .samples = state.samples()});
  }
}

void RunningMeanCallback::on_loader_end(State& state) {
  if (!is_active_) return;
  for (std::size_t i = 0; i < means_.size(); ++i) {
    for (const auto& [name, value] : merged(means_[i], *state.comm)) {
      // If batches have the number, the average of the whole pass is NaN, too.
      const auto whole = state.loader_metrics.find(options_.metrics[i]);
      const bool is_whole_nan = whole != state.loader_metrics.end() && std::isnan(whole->second);
      if (std::isnan(value) && !is_whole_nan) {
        throw ConfigError(
            "RunningMeanCallback: metrics: no batch of '{}' has a number '{}'; expected the loss "
            "or "
            "a metric that handle_batch sets",
            state.loader, options_.metrics[i]);
      }
      state.loader_metrics[name] = value;
    }
    means_[i].reset();  // so that no later checkpoint contains it
  }
  is_active_ = false;
}

void RunningMeanCallback::gather(comm::Communicator& communicator) {
  for (metric::RunningMean& mean : means_) gather_metric(mean, communicator);
}

StateDict RunningMeanCallback::state() const {
  StateDict state;
  for (std::size_t i = 0; i < means_.size(); ++i) {
    state.set(options_.metrics[i], means_[i].state());
  }
  return state;
}

void RunningMeanCallback::load_state(const StateDict& state) {
  for (std::size_t i = 0; i < means_.size(); ++i) {
    means_[i].load_state(state.get<StateDict>(options_.metrics[i]));
  }
}

}  // namespace lockstep
