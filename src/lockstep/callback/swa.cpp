#include "lockstep/callback/swa.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

constexpr const char* kSwa = "SwaCallback";

void expect_positive(const char* name, const std::optional<std::int64_t>& value) {
  if (value && *value < 1)
    throw ConfigError("{}: {}: expected 1 or more, got {}", kSwa, name, *value);
}

}  // namespace

SwaCallback::SwaCallback(SwaCallbackOptions options) : options_(std::move(options)) {
  expect_positive("start_epoch", options_.start_epoch);
  expect_positive("start_step", options_.start_step);
  expect_positive("every", options_.every);
  if (options_.lr && !(*options_.lr > 0)) {
    throw ConfigError("{}: lr: expected a positive number, got {}", kSwa, *options_.lr);
  }
  if (options_.anneal_epochs < 0) {
    throw ConfigError("{}: anneal_epochs: expected 0 or more, got {}", kSwa,
                      options_.anneal_epochs);
  }
  if (options_.anneal_epochs > 0 && !options_.lr) {
    throw ConfigError("{}: anneal_epochs is {}, but there is no lr to which the learning rate goes",
                      kSwa, options_.anneal_epochs);
  }
}

std::string SwaCallback::agreed_options() const {
  return OptionText()
      .with("start_epoch", options_.start_epoch)
      .with("start_step", options_.start_step)
      .with("every", options_.every)
      .with("lr", options_.lr)
      .with("anneal_epochs", options_.anneal_epochs)
      .with("anneal", options_.anneal == optim::Anneal::kCos ? "cos" : "linear")
      .with("networks", options_.networks)
      .with("remake_batch_norm", options_.remake_batch_norm)
      .str();
}

AveragedWeights::Request SwaCallback::request() const {
  return {.asked_by = kSwa,
          .networks = options_.networks,
          .remake_batch_norm = options_.remake_batch_norm};
}

void SwaCallback::check(const State& state) const {
  AveragedWeights::check(request(), state);
}

void SwaCallback::on_run_start(State& state) {
  state.averaged->open(request());
  const bool is_resumed =
      std::exchange(has_loaded_, false) && (state.progress.epoch > 0 || state.inside_epoch);
  if (!state.averaged->exists()) count_ = 0;
  if (!is_resumed) {
    first_lrs_ = {};
    first_epoch_ = {};
  }
}

std::int64_t SwaCallback::first_epoch(const State& state) const {
  if (first_epoch_) return *first_epoch_;
  return options_.start_epoch.value_or(3 * state.progress.num_epochs / 4 + 1);
}

bool SwaCallback::has_begun(const State& state) const {
  return state.progress.epoch >= first_epoch(state) &&
         state.progress.update_step >= options_.start_step;
}

void SwaCallback::on_epoch_start(State& state) {
  if (state.progress.epoch < first_epoch(state)) return;
  // A resumed run may have more epochs, of which three quarters are a later epoch.
  first_epoch_ = first_epoch(state);
  if (!options_.lr) return;
  if (first_lrs_.size() == 0) {
    for (const auto& [name, optimizer] : state.optimizers) first_lrs_.set(name, optimizer->lr());
  }
  set_lr(state);
}

void SwaCallback::set_lr(State& state) const {
  const auto epochs = static_cast<double>(state.progress.epoch - first_epoch(state) + 1);
  const auto length = static_cast<double>(std::max<std::int64_t>(options_.anneal_epochs, 1));
  const double part = std::min(1.0, epochs / length);
  const double share =
      options_.anneal == optim::Anneal::kCos ? (1 - std::cos(std::numbers::pi * part)) / 2 : part;
  for (const auto& [name, optimizer] : state.optimizers) {
    const auto first = first_lrs_.get<double>(name);
    optimizer->set_lr(part == 1.0 ? *options_.lr : first + share * (*options_.lr - first));
  }
}

void SwaCallback::add(State& state) {
  ++count_;
  state.averaged->add(1.0 / static_cast<double>(count_));
}

void SwaCallback::on_step(State& state) {
  if (!state.is_train) return;
  // A scheduler may have stepped.
  if (first_lrs_.size() > 0) set_lr(state);
  const bool is_due =
      options_.every && !state.stepped.empty() && state.progress.update_step % *options_.every == 0;
  if (is_due && has_begun(state)) add(state);
}

void SwaCallback::on_loader_end(State& state) {
  if (options_.every || !is_last_train_loader(state, state.loader)) return;
  if (has_begun(state)) add(state);
}

void SwaCallback::on_run_end(State& state) {
  if (state.exception || count_ > 0 || !state.comm->is_primary()) return;
  warn(fmt::format(
      "{}: the run ended in epoch {}, after {} updates, before anything was averaged (start_epoch "
      "{}, start_step {}): the model has the weights of the last update",
      kSwa, state.progress.epoch, state.progress.update_step, first_epoch(state),
      options_.start_step));
}

StateDict SwaCallback::state() const {
  if (count_ == 0 && first_lrs_.size() == 0 && !first_epoch_) return {};
  StateDict state{{"count", count_}, {"first_lrs", first_lrs_}};
  if (first_epoch_) state.set("first_epoch", *first_epoch_);
  return state;
}

void SwaCallback::load_state(const StateDict& state) {
  has_loaded_ = state.size() > 0;
  count_ = state.get_or<std::int64_t>("count", 0);
  first_lrs_ = state.get_or<StateDict>("first_lrs", {});
  first_epoch_ = {};
  // Older checkpoints do not have it.
  if (state.contains("first_epoch")) first_epoch_ = state.get<std::int64_t>("first_epoch");
}

}  // namespace lockstep
