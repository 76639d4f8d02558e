#include "lockstep/runner/state.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "lockstep/base/text.h"

namespace lockstep {

Interrupted::Interrupted(int signal)
    : Error("interrupted by {}", signal == SIGINT ? "Ctrl-C" : strsignal(signal)),
      signal_number(signal) {}

bool is_train_loader(std::string_view name) {
  return name.starts_with("train");
}

void check_metric_key(const State& state, const MetricKey& key, std::string_view who) {
  if (!state.loaders.contains(key.loader)) {
    throw ConfigError("{}: there is no loader '{}'; {}", who, key.loader,
                      suggest(key.loader, state.loaders.names()));
  }
  if (!state.known_metrics) return;
  if (std::ranges::find(*state.known_metrics, key.metric) == state.known_metrics->end()) {
    throw ConfigError("{}: nobody computes a metric '{}'; {}", who, key.metric,
                      suggest(key.metric, *state.known_metrics));
  }
}

double metric_value(const State& state, const MetricKey& key, std::string_view who) {
  const auto loader = state.epoch_metrics.find(key.loader);
  if (loader == state.epoch_metrics.end()) {
    throw ConfigError("{}: loader '{}' did not run in epoch {}", who, key.loader,
                      state.progress.epoch);
  }
  const auto value = loader->second.find(key.metric);
  if (value != loader->second.end()) return value->second;
  std::vector<std::string> names;
  for (const auto& [name, ignored] : loader->second) names.push_back(name);
  throw ConfigError("{}: loader '{}' has no metric '{}'; {}", who, key.loader, key.metric,
                    suggest(key.metric, names));
}

}  // namespace lockstep
