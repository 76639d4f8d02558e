#include "lockstep/callback/lambda.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep {
namespace {

const char* hook_name(HookPoint hook) {
  switch (hook) {
    case HookPoint::kRunStart:
      return "on_run_start";
    case HookPoint::kEpochStart:
      return "on_epoch_start";
    case HookPoint::kLoaderStart:
      return "on_loader_start";
    case HookPoint::kBatchStart:
      return "on_batch_start";
    case HookPoint::kOutputs:
      return "on_outputs";
    case HookPoint::kForward:
      return "on_forward";
    case HookPoint::kBackward:
      return "on_backward";
    case HookPoint::kBatchEnd:
      return "on_batch_end";
    case HookPoint::kStep:
      return "on_step";
    case HookPoint::kLoaderEnd:
      return "on_loader_end";
    case HookPoint::kEpochEnd:
      return "on_epoch_end";
    case HookPoint::kCheckpoint:
      return "on_checkpoint";
    case HookPoint::kRunEnd:
      return "on_run_end";
    case HookPoint::kException:
      return "on_exception";
  }
  throw Error("a callback for a hook that does not exist");
}

CallbackTraits default_traits(HookPoint hook) {
  using enum HookPoint;
  const bool before_update = hook == kBatchStart || hook == kOutputs || hook == kForward;
  CallbackTraits traits{.uses_gradients = hook == kBackward, .changes_batch = before_update};
  if (!before_update && hook != kBackward && hook != kLoaderEnd) traits.metric_names = no_metrics();
  return traits;
}

bool is_called_on(Ranks ranks, const State& state) {
  return ranks == Ranks::kAll || state.comm->is_primary() == (ranks == Ranks::kPrimary);
}

// Only rank 0 reaches on_checkpoint, and a count would be in the next checkpoint only.
void check_countable(HookPoint hook, const std::string& name, const char* modifier) {
  if (hook != HookPoint::kCheckpoint) return;
  throw ConfigError(
      "{}: {}: checkpoints are not counted, because only rank 0 writes them; use only_if(), or "
      "limit the CheckpointCallback",
      name, modifier);
}

bool any_rank(bool mine, const State& state) {
  return std::ranges::any_of(state.comm->vote(mine ? 1 : 0), [](auto vote) { return vote != 0; });
}

}  // namespace

LambdaCallback::LambdaCallback(HookPoint hook, Function function)
    : hook_(hook),
      function_(std::move(function)),
      name_(hook_name(hook)),
      traits_(default_traits(hook)) {
  if (!function_) throw ConfigError("{}: expected a function, got an empty one", name_);
}

template <typename Change>
LambdaCallback LambdaCallback::changed(Change change) const {
  LambdaCallback copy = *this;
  change(copy);
  return copy;
}

LambdaCallback LambdaCallback::every(std::int64_t n) const {
  if (n < 1) throw ConfigError("{}: every: expected a positive integer, got {}", name_, n);
  check_countable(hook_, name_, "every");
  if (hook_ == HookPoint::kRunStart || hook_ == HookPoint::kRunEnd ||
      hook_ == HookPoint::kException) {
    throw ConfigError("{}: every({}) makes no sense, because a run reaches {} once", name_, n,
                      hook_name(hook_));
  }
  return changed([&](LambdaCallback& copy) { copy.every_ = n; });
}

LambdaCallback LambdaCallback::once() const {
  check_countable(hook_, name_, "once");
  if (hook_ == HookPoint::kRunEnd || hook_ == HookPoint::kException) {
    throw ConfigError(
        "{}: once() makes no sense, because a run reaches {} once and saves nothing after it",
        name_, hook_name(hook_));
  }
  return changed([](LambdaCallback& copy) { copy.once_ = true; });
}

LambdaCallback LambdaCallback::only_if(Predicate predicate) const {
  if (!predicate) throw ConfigError("{}: only_if: expected a function, got an empty one", name_);
  return changed([&](LambdaCallback& copy) {
    if (!only_if_) {
      copy.only_if_ = std::move(predicate);
    } else {
      copy.only_if_ = [first = only_if_, second = std::move(predicate)](const State& state) {
        return first(state) && second(state);
      };
    }
  });
}

LambdaCallback LambdaCallback::on(Ranks ranks) const {
  return changed([&](LambdaCallback& copy) { copy.traits_.ranks = ranks; });
}

LambdaCallback LambdaCallback::named(std::string name) const {
  return changed([&](LambdaCallback& copy) { copy.name_ = std::move(name); });
}

LambdaCallback LambdaCallback::uses_gradients(bool uses) const {
  return changed([&](LambdaCallback& copy) { copy.traits_.uses_gradients = uses; });
}

LambdaCallback LambdaCallback::changes_batch(bool changes) const {
  return changed([&](LambdaCallback& copy) { copy.traits_.changes_batch = changes; });
}

LambdaCallback LambdaCallback::adds_metrics(std::vector<std::string> names) const {
  return changed([&](LambdaCallback& copy) { copy.traits_.metric_names = std::move(names); });
}

LambdaCallback LambdaCallback::needs_training(bool needs) const {
  return changed([&](LambdaCallback& copy) { copy.traits_.needs_training = needs; });
}

CallbackTraits LambdaCallback::traits() const {
  CallbackTraits traits = traits_;
  if (counts()) traits.ranks = Ranks::kAll;
  return traits;
}

// Ranks count together, and with once() they vote.
std::string LambdaCallback::agreed_options() const {
  return OptionText()
      .with("every", every_)
      .with("once", once_)
      .with("only_if", only_if_ != nullptr)
      .str();
}

bool LambdaCallback::is_per_shard() const {
  using enum HookPoint;
  return hook_ == kBatchStart || hook_ == kOutputs || hook_ == kForward || hook_ == kBackward ||
         hook_ == kBatchEnd;
}

void LambdaCallback::on_run_start(State& state) {
  const bool is_resumed =
      std::exchange(has_loaded_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  if (!is_resumed) {
    counts_.clear();
    is_done_ = false;
  }
  was_called_ = false;
  inside_resumed_ = is_resumed && state.inside_epoch;
  occasion(HookPoint::kRunStart, state);
}

void LambdaCallback::on_epoch_start(State& state) {
  const bool before = std::exchange(inside_resumed_, false);
  occasion(HookPoint::kEpochStart, state, before ? Seen::kBefore : Seen::kNew);
}

void LambdaCallback::on_loader_start(State& state) {
  // A pass begins after batch 0, unless it is resumed.
  occasion(HookPoint::kLoaderStart, state, state.loader_batch > 0 ? Seen::kBefore : Seen::kNew);
}

// Closes the occasion of the hooks that are called per shard. A worker without samples in this
// batch does not reach them, but it reaches this one.
void LambdaCallback::on_step(State& state) {
  occasion(HookPoint::kStep, state);
  if (is_per_shard() && counts()) close(state);
}

void LambdaCallback::occasion(HookPoint hook, State& state, Seen seen) {
  if (hook != hook_) return;
  if (is_due(state, seen)) was_called_ = call(state);
  if (counts()) close(state, seen);
}

void LambdaCallback::shard(HookPoint hook, State& state) {
  if (hook != hook_ || !is_due(state)) return;
  if (call(state)) was_called_ = true;
}

std::int64_t& LambdaCallback::count(const State& state) {
  using enum HookPoint;
  const bool of_epochs = hook_ == kRunStart || hook_ == kEpochStart || hook_ == kEpochEnd;
  return counts_[of_epochs ? "epochs" : state.loader];
}

bool LambdaCallback::is_due(const State& state, Seen seen) {
  if (!counts()) return true;
  return !is_done_ && (count(state) + (seen == Seen::kNew ? 1 : 0)) % every_ == 0;
}

// Returns whether the predicate allows it.
bool LambdaCallback::call(State& state) const {
  if (only_if_ && !only_if_(state)) return false;
  if (is_called_on(traits_.ranks, state)) function_(state);
  return true;
}

// Ends an occasion, on every rank.
void LambdaCallback::close(State& state, Seen seen) {
  const bool was_called = std::exchange(was_called_, false);
  // Equal on all ranks, so either all of them vote or none.
  if (once_ && is_due(state, seen)) is_done_ = only_if_ ? any_rank(was_called, state) : true;
  if (seen == Seen::kNew) count(state) += 1;
}

StateDict LambdaCallback::state() const {
  if (!counts()) return {};
  StateDict counts;
  for (const auto& [name, number] : counts_) counts.set(name, number);
  return {{"counts", std::move(counts)}, {"is_done", is_done_}};
}

void LambdaCallback::load_state(const StateDict& state) {
  has_loaded_ = state.size() > 0;  // else on_run_start resets it
  if (!has_loaded_) return;
  const auto saved = state.get<StateDict>("counts");
  counts_.clear();
  for (const auto& name : saved.keys()) counts_[name] = saved.get<std::int64_t>(name);
  is_done_ = state.get<bool>("is_done");
}

LambdaCallback on_run_start(LambdaCallback::Function function) {
  return {HookPoint::kRunStart, std::move(function)};
}
LambdaCallback on_epoch_start(LambdaCallback::Function function) {
  return {HookPoint::kEpochStart, std::move(function)};
}
LambdaCallback on_loader_start(LambdaCallback::Function function) {
  return {HookPoint::kLoaderStart, std::move(function)};
}
LambdaCallback on_batch_start(LambdaCallback::Function function) {
  return {HookPoint::kBatchStart, std::move(function)};
}
LambdaCallback on_outputs(LambdaCallback::Function function) {
  return {HookPoint::kOutputs, std::move(function)};
}
LambdaCallback on_forward(LambdaCallback::Function function) {
  return {HookPoint::kForward, std::move(function)};
}
LambdaCallback on_backward(LambdaCallback::Function function) {
  return {HookPoint::kBackward, std::move(function)};
}
LambdaCallback on_batch_end(LambdaCallback::Function function) {
  return {HookPoint::kBatchEnd, std::move(function)};
}
LambdaCallback on_step(LambdaCallback::Function function) {
  return {HookPoint::kStep, std::move(function)};
}
LambdaCallback on_loader_end(LambdaCallback::Function function) {
  return {HookPoint::kLoaderEnd, std::move(function)};
}
LambdaCallback on_epoch_end(LambdaCallback::Function function) {
  return {HookPoint::kEpochEnd, std::move(function)};
}
LambdaCallback on_checkpoint(LambdaCallback::Function function) {
  return {HookPoint::kCheckpoint, std::move(function)};
}
LambdaCallback on_run_end(LambdaCallback::Function function) {
  return {HookPoint::kRunEnd, std::move(function)};
}
LambdaCallback on_exception(LambdaCallback::Function function) {
  return {HookPoint::kException, std::move(function)};
}

}  // namespace lockstep
