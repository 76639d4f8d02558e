#include "lockstep/callback/control_flow.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

template <typename T>
bool has(const std::vector<T>& list, const T& value) {
  return std::ranges::find(list, value) != list.end();
}

}  // namespace

ControlFlowCallback::ControlFlowCallback(Callbacks::Item callback,
                                         ControlFlowCallbackOptions options)
    : held_(callback.get()), options_(std::move(options)) {
  if (held_ == nullptr) throw ConfigError("ControlFlowCallback: expected a callback, got none");
  const auto& o = options_;
  if (o.loaders.empty() && o.ignore_loaders.empty() && !o.every && o.epochs.empty() &&
      o.ignore_epochs.empty() && o.loader_epochs.empty() && o.ignore_loader_epochs.empty() &&
      !o.filter) {
    throw ConfigError(
        "ControlFlowCallback: expected loaders, ignore_loaders, every, epochs, ignore_epochs, "
        "loader_epochs, ignore_loader_epochs or a filter, got none");
  }
  if (o.every && *o.every < 1) {
    throw ConfigError("ControlFlowCallback: every: expected a positive integer, got {}", *o.every);
  }
}

std::string ControlFlowCallback::agreed_options() const {
  const auto& o = options_;
  return OptionText()
      .with("callback", fmt::format("({})", held_->agreed_options()))
      .with("loaders", o.loaders)
      .with("ignore_loaders", o.ignore_loaders)
      .with("every", o.every)
      .with("epochs", o.epochs)
      .with("ignore_epochs", o.ignore_epochs)
      .with("loader_epochs", o.loader_epochs)
      .with("ignore_loader_epochs", o.ignore_loader_epochs)
      .with("filter", o.filter != nullptr)
      .str();
}

void ControlFlowCallback::check(const State& state) const {
  const auto names = state.loaders.names();
  // An evaluation has one loader only. A callback for another one does nothing then.
  const bool evaluates = state.optimizer == nullptr;
  const auto expect = [&](const std::string& loader) {
    if (evaluates || has(names, loader)) return;
    throw ConfigError("ControlFlowCallback: there is no loader '{}'; {}", loader,
                      suggest(loader, names));
  };
  for (const auto& list : {options_.loaders, options_.ignore_loaders}) {
    for (const std::string& loader : list) expect(loader);
  }
  for (const auto& map : {options_.loader_epochs, options_.ignore_loader_epochs}) {
    for (const auto& [loader, epochs] : map) expect(loader);
  }
  held_->check(state);
}

// The filter is not asked, because it may depend on the epoch.
void ControlFlowCallback::dry_run(const std::string& loader, Batch& batch) {
  if (allows_loader(loader) && !options_.filter) held_->dry_run(loader, batch);
}

bool ControlFlowCallback::allows_epoch(std::int64_t epoch) const {
  const auto& o = options_;
  return (!o.every || epoch % *o.every == 0) && (o.epochs.empty() || has(o.epochs, epoch)) &&
         !has(o.ignore_epochs, epoch);
}

bool ControlFlowCallback::allows_loader(const std::string& loader) const {
  const auto& o = options_;
  return (o.loaders.empty() || has(o.loaders, loader)) && !has(o.ignore_loaders, loader) &&
         (o.loader_epochs.empty() || o.loader_epochs.contains(loader));
}

bool ControlFlowCallback::allows(std::int64_t epoch, const std::string& loader) const {
  const auto lists = [&](const auto& map) {
    const auto found = map.find(loader);
    return found != map.end() && has(found->second, epoch);
  };
  return allows_epoch(epoch) && allows_loader(loader) &&
         (options_.loader_epochs.empty() || lists(options_.loader_epochs)) &&
         !lists(options_.ignore_loader_epochs) &&
         (!options_.filter || options_.filter(epoch, loader));
}

void ControlFlowCallback::on_loader_start(State& state) {
  is_allowed_ = allows(state.progress.epoch, state.loader);
  pass(&Callback::on_loader_start, state);
}

Metrics ControlFlowCallback::running_metrics() const {
  return is_allowed_ ? held_->running_metrics() : Metrics();
}

void ControlFlowCallback::gather(comm::Communicator& communicator) {
  if (is_allowed_) held_->gather(communicator);
}

ControlFlowCallback every(std::int64_t n, Callbacks::Item callback) {
  return {std::move(callback), {.every = n}};
}

ControlFlowCallback only_if(
    std::function<bool(std::int64_t epoch, const std::string& loader)> filter,
    Callbacks::Item callback) {
  return {std::move(callback), {.filter = std::move(filter)}};
}

}  // namespace lockstep
