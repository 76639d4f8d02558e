#include "lockstep/callback/soft_update.h"

#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/blend.h"

namespace lockstep {
namespace {

constexpr const char* kSoftUpdate = "SoftUpdateCallback";

void check_network(const State& state, const char* option, const std::string& name) {
  if (state.models.contains(name)) return;
  throw ConfigError("{}: {}: there is no network '{}'; {}", kSoftUpdate, option, name,
                    suggest(name, state.models.names()));
}

}  // namespace

SoftUpdateCallback::SoftUpdateCallback(SoftUpdateCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.source == options_.target) {
    throw ConfigError("{}: source and target: expected two networks, got '{}' twice", kSoftUpdate,
                      options_.source);
  }
  if (!(options_.tau > 0 && options_.tau <= 1)) {
    throw ConfigError("{}: tau: expected a number above 0 and at most 1, got {}", kSoftUpdate,
                      options_.tau);
  }
  if (options_.every < 1) {
    throw ConfigError("{}: every: expected 1 or more, got {}", kSoftUpdate, options_.every);
  }
}

std::string SoftUpdateCallback::agreed_options() const {
  return OptionText()
      .with("source", options_.source)
      .with("target", options_.target)
      .with("tau", options_.tau)
      .with("every", options_.every)
      .with("copy_at_start", options_.copy_at_start)
      .str();
}

void SoftUpdateCallback::check(const State& state) const {
  check_network(state, "source", options_.source);
  check_network(state, "target", options_.target);
  // Without optimizers by name, the only one trains all networks.
  bool any_by_name = false;
  for (const auto& name : state.models.names()) {
    any_by_name = any_by_name || state.optimizers.contains(name);
  }
  if (!any_by_name || state.optimizers.contains(options_.target)) {
    throw ConfigError(
        "{}: target: an optimizer trains '{}', so it cannot follow another network; give the "
        "networks that are trained their own optimizers (.optimizers), and leave '{}' out",
        kSoftUpdate, options_.target, options_.target);
  }
  const NamedTensors source = state.models[options_.source].weights();
  const NamedTensors target = state.models[options_.target].weights();
  for (std::size_t i = 0; i < std::max(source.size(), target.size()); ++i) {
    const bool fits = i < source.size() && i < target.size() &&
                      source[i].second.sizes() == target[i].second.sizes();
    if (fits) continue;
    const auto text = [&](const NamedTensors& weights) {
      return i < weights.size() ? fmt::format("'{}' of shape [{}]", weights[i].first,
                                              fmt::join(weights[i].second.sizes(), ", "))
                                : std::string("no further weight");
    };
    throw ConfigError(
        "{}: expected two networks with the same weights, but '{}' has {} and '{}' "
        "has {}",
        kSoftUpdate, options_.source, text(source), options_.target, text(target));
  }
}

void SoftUpdateCallback::on_run_start(State& state) {
  const bool is_resumed = state.progress.epoch > 0 || state.inside_epoch;
  if (options_.copy_at_start && !is_resumed) move(state, 1.0);
}

void SoftUpdateCallback::on_step(State& state) {
  // While gradients wait for a later batch, there is no update.
  if (!state.is_train || state.stepped.empty()) return;
  if (state.progress.update_step % options_.every == 0) move(state, options_.tau);
}

// No rank changes the source before all ranks have come to the next update. Buffers are those of
// the first shard on all ranks after an update.
void SoftUpdateCallback::move(const State& state, double weight) const {
  const NamedTensors source = state.models[options_.source].weights();
  const NamedTensors target = state.models[options_.target].weights();
  std::set<const c10::TensorImpl*> seen;  // a tied weight has several names, and moves once
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (!seen.insert(target[i].second.unsafeGetTensorImpl()).second) continue;
    optim::blend(target[i].second.detach(), source[i].second.detach(), weight);
  }
}

}  // namespace lockstep
