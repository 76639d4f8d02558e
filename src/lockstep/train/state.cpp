#include "lockstep/train/state.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "lockstep/base/text.h"

namespace lockstep {

Interrupted::Interrupted(int signal)
    : Error("interrupted by {}", signal == SIGINT ? "Ctrl-C" : strsignal(signal)),
      signal_number(signal) {}

namespace {

void check_over(const LossOver& over, std::string_view what) {
  // Written so that NaN is refused, too.
  if (over.weight >= 0 && std::isfinite(over.weight)) return;
  throw DataError("{}: expected a weight of 0 or more, got {}", what, over.weight);
}

}  // namespace

void State::set_loss(torch::Tensor loss, const LossOver& over) {
  check_over(over, loss_key);
  said.loss = loss;
  said.loss_over = over;
  batch.set(loss_key, std::move(loss));
}

void State::add_loss(const torch::Tensor& term, const LossOver& over) {
  if (!batch.contains(loss_key)) {
    set_loss(term, over);
    return;
  }
  // Two terms with equal weights have a sum with that weight, even if one weight was given as
  // samples.
  const auto size = static_cast<double>(samples());
  const auto weighted = [&](const LossOver& given) {
    return given.kind == LossOver::Kind::kSamples ? mean_over(size) : given;
  };
  const LossOver before = loss_over();
  const bool alike = weighted(before) == weighted(over);
  set_loss(batch[loss_key] + term, alike ? before : LossOver{.kind = LossOver::Kind::kMixed});
}

LossOver State::loss_over() const {
  const torch::Tensor* const loss = said.loss.defined() ? batch.find(loss_key) : nullptr;
  const bool is_said = loss != nullptr && loss->is_same(said.loss);
  return is_said ? said.loss_over : mean_over_samples();
}

void State::set_metric(const std::string& name, double value, const LossOver& over) {
  check_over(over, name);
  batch_metrics[name] = value;
  said.metrics[name] = over;
}

Metrics hyper_metrics(const RunState& run) {
  Metrics metrics;
  for (const auto& [name, optimizer] : run.optimizers) {
    const std::string suffix = run.optimizers.size() > 1 ? "/" + name : "";
    metrics["lr" + suffix] = optimizer->lr();
    if (const auto momentum = optimizer->momentum()) metrics["momentum" + suffix] = *momentum;
  }
  return metrics;
}

void State::log_image(const std::string& tag, const Image& image) const {
  const std::string& name = loader.empty() ? std::string(kEpochKey) : loader;
  for (const auto& logger : loggers) logger->log_image(name, tag, image, progress);
}

void State::log_artifact(const Artifact& artifact) const {
  for (const auto& logger : loggers) logger->log_artifact(artifact, progress);
}

void State::skip_loader(const std::string& name) {
  if (!loaders.contains(name)) {
    throw ConfigError("skip_loader: there is no loader '{}'; {}", name,
                      suggest(name, loaders.names()));
  }
  skipped_loaders.insert(name);
}

bool is_train_loader(std::string_view name) {
  return name.starts_with("train");
}

bool is_last_train_loader(const State& state, std::string_view name) {
  if (!is_train_loader(name)) return false;
  const auto names = state.loaders.names();
  const auto later = std::ranges::find(names, name) + 1;
  return std::none_of(later, names.end(), [&](const std::string& other) {
    return is_train_loader(other) && !state.is_left_out(other);
  });
}

void check_metric_key(const RunState& run, const MetricKey& key, std::string_view asked_by) {
  if (!run.loaders.contains(key.loader)) {
    throw ConfigError("{}: there is no loader '{}'; {}", asked_by, key.loader,
                      suggest(key.loader, run.loaders.names()));
  }
  if (!run.known_metrics) return;
  if (std::ranges::find(*run.known_metrics, key.metric) == run.known_metrics->end()) {
    throw ConfigError(
        "{}: no callback or runner computes a metric '{}'; {} (if handle_batch of your runner "
        "computes it, list it in metric_names())",
        asked_by, key.metric, suggest(key.metric, *run.known_metrics));
  }
}

bool minimizes(const RunState& run, const DirectionRequest& request) {
  if (request.said) return *request.said;
  const auto better = run.better ? run.better(request.metric) : std::nullopt;
  if (better) return *better == Better::kSmaller;
  throw ConfigError(
      "{}: it is not known whether a smaller or a larger '{}' is better; set {} = true or "
      "false, or override better() of the callback that computes it",
      request.asked_by, request.metric, request.option);
}

Selection selection_for(const RunState& run, const SelectionRequest& request) {
  if (!request.metric) {
    Selection of_run = run.selection;
    of_run.minimize = request.minimize.value_or(of_run.minimize);
    return of_run;
  }
  check_metric_key(run, *request.metric, request.asked_by);
  return {.key = request.metric,
          .minimize = minimizes(run, {.said = request.minimize,
                                      .metric = request.metric->metric,
                                      .asked_by = request.asked_by,
                                      .option = "its minimize"})};
}

double metric_value(const ProgressState& reached, const MetricKey& key, std::string_view asked_by) {
  const auto loader = reached.epoch_metrics.find(key.loader);
  if (loader == reached.epoch_metrics.end()) {
    throw ConfigError("{}: loader '{}' did not run in epoch {}", asked_by, key.loader,
                      reached.progress.epoch);
  }
  if (const auto value = find_metric(reached.epoch_metrics, key)) return *value;
  std::vector<std::string> names;
  for (const auto& [name, ignored] : loader->second) names.push_back(name);
  throw ConfigError("{}: loader '{}' has no metric '{}'; {}", asked_by, key.loader, key.metric,
                    suggest(key.metric, names));
}

std::optional<double> metric_if_run(const State& state, const MetricKey& key,
                                    std::string_view asked_by) {
  if (state.is_left_out(key.loader)) return std::nullopt;
  return metric_value(state, key, asked_by);
}

}  // namespace lockstep
