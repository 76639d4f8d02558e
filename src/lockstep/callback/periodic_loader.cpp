#include "lockstep/callback/periodic_loader.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {
constexpr const char* kPeriodicLoader = "PeriodicLoaderCallback";
}

PeriodicLoaderCallback::PeriodicLoaderCallback(PeriodicLoaderCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.every.empty()) {
    throw ConfigError("{}: every: expected a number for a loader, got none", kPeriodicLoader);
  }
  for (const auto& [name, period] : options_.every) {
    if (period >= 0) continue;
    throw ConfigError("{}: every: {}: expected 0 or more epochs, got {}", kPeriodicLoader, name,
                      period);
  }
}

std::string PeriodicLoaderCallback::agreed_options() const {
  return OptionText().with("every", options_.every).str();
}

bool PeriodicLoaderCallback::takes_part(const std::string& loader, std::int64_t epoch) const {
  const auto found = options_.every.find(loader);
  if (found == options_.every.end()) return true;
  return found->second > 0 && epoch % found->second == 0;
}

void PeriodicLoaderCallback::check(const State& state) const {
  const auto names = state.loaders.names();
  for (const auto& [name, period] : options_.every) {
    if (state.loaders.contains(name)) continue;
    throw ConfigError("{}: there is no loader '{}'; {}", kPeriodicLoader, name,
                      suggest(name, names));
  }
  // A loader of the first epoch takes part in all of them.
  if (std::ranges::none_of(names, [&](const auto& name) { return takes_part(name, 1); })) {
    throw ConfigError("{}: epoch 1 would have no loader; leave one out, or give it 1",
                      kPeriodicLoader);
  }
  const auto& key = state.selection.key;
  const auto found = key ? options_.every.find(key->loader) : options_.every.end();
  if (found == options_.every.end()) return;
  if (found->second >= 1 && found->second <= state.progress.num_epochs) return;
  throw ConfigError(
      "{}: the valid_loader '{}' would take part in none of {} epochs, so none could be the best",
      kPeriodicLoader, key->loader, state.progress.num_epochs);
}

void PeriodicLoaderCallback::on_epoch_start(State& state) {
  for (const auto& [name, period] : options_.every) {
    if (!takes_part(name, state.progress.epoch)) state.skip_loader(name);
  }
}

}  // namespace lockstep
