#include "lockstep/train/run_memory.h"

#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The failure of an attempt whose ranks could not report it: they were not connected.
process::RankFailure failure_of(const Engine::AttemptFailure& failure) {
  if (failure.rank) return *failure.rank;
  process::RankFailure found;
  try {
    std::rethrow_exception(failure.error);
  } catch (const std::exception& error) {
    found.reason = message_of(error);
    found.kind = process::failure_kind(error);
  } catch (...) {
    found.reason = "threw something that is no exception";
  }
  return found;
}

}  // namespace

void RunMemory::close_loggers() noexcept {
  for (const auto& logger : std::exchange(loggers_, {})) {
    try {
      logger->close();
    } catch (const std::exception& error) {
      warn(fmt::format("while a logger was closed: {}", message_of(error)));
    }
  }
}

void RunMemory::begin_attempt(const Model& model) {
  const NamedTensors parameters = model.parameters();
  if (!first_weights_) {
    first_weights_ = model.state();
    for (const auto& [name, tensor] : parameters)
      first_trainable_.push_back(tensor.requires_grad());
    return;
  }
  // Callbacks of the attempt before may have frozen parameters. They freeze them again where they
  // did so.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor tensor = parameters[i].second;
    if (tensor.requires_grad() != first_trainable_[i])
      tensor.set_requires_grad(first_trainable_[i]);
  }
  model.load_state(*first_weights_);
}

void RunMemory::note_log_positions() {
  point_positions_.clear();
  for (const auto& logger : loggers_) point_positions_.push_back(logger->position());
}

void RunMemory::rewind_loggers() {
  for (std::size_t i = 0; i < loggers_.size(); ++i) loggers_[i]->rewind(point_positions_[i]);
}

void RunMemory::keep_point(KeptRun point, Clock::time_point began) {
  point_ = std::move(point);
  note_log_positions();
  batches_since_point_ = 0;
  const auto now = Clock::now();
  next_point_ = now + kPointShare * (now - began);
}

std::optional<Recovery> RunMemory::complete_recovery() {
  if (!unfinished_) return std::nullopt;
  recoveries_ += 1;
  unfinished_->seconds = std::chrono::duration<double>(Clock::now() - failed_at_).count();
  return std::exchange(unfinished_, std::nullopt);
}

bool RunMemory::will_restart(const process::RankFailure& failure) {
  decision_ = policy_.allows_another(failure);
  // If the attempt failed before its first batch was finished, the recovery is still the one
  // before.
  if (!unfinished_) failed_at_ = Clock::now();
  unfinished_ =
      Recovery{.time = std::chrono::system_clock::now(),
               .rank = failure.rank,
               .kind = std::string(name_of(failure.kind)),
               .reason = failure.reason,
               .epoch = failure.epoch,
               .batch = failure.batch,
               .repeated_batches = batches_since_point_ +
                                   (unfinished_ ? unfinished_->repeated_batches.value_or(0) : 0)};
  batches_since_point_ = 0;
  return *decision_;
}

bool RunMemory::try_again(const Engine::AttemptFailure& failure) {
  if (!decision_) will_restart(failure_of(failure));
  if (*std::exchange(decision_, std::nullopt)) {
    std::this_thread::sleep_for(policy_.backoff());
    return true;
  }
  if (const std::string why = policy_.describe_refusal(); !why.empty()) warn(why);
  return false;
}

}  // namespace lockstep
