#include "lockstep/train/run_memory.h"

#include <algorithm>
#include <set>
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

RunMemory::RunMemory(StoredRun stored, Launched launched)
    : policy_(launched.max_restarts),
      stored_(std::move(stored)),
      is_elastic_(launched.is_elastic),
      place_(launched.place),
      identity_(std::move(launched.identity)) {
  // The first failure of each attempt is its cause.
  std::set<int> attempts;
  for (const process::FailureNote& note : stored_->file().failures()) {
    if (!attempts.insert(note.attempt).second) continue;
    const process::RankFailure failure{.rank = note.rank,
                                       .reason = note.reason,
                                       .kind = note.kind,
                                       .epoch = std::max<std::int64_t>(note.epoch, 0),
                                       .batch = std::max<std::int64_t>(note.batch, 0)};
    will_restart(failure, failure.rank < 0);  // a lost node has no rank
  }
  decision_.reset();
  if (unfinished_) unfinished_->repeated_batches = stored_->batches_lost();
  if (const auto failed = stored_->file().attempt_start().failed) {
    failed_at_ = *failed;
    // The launcher noted when the attempt failed. Since then it has started this program.
    if (unfinished_) {
      unfinished_->time -= std::chrono::duration_cast<std::chrono::system_clock::duration>(
          Clock::now() - failed_at_);
    }
  }
}

void RunMemory::take(const process::StoredPoint& point) {
  try {
    stored_->take(point);
  } catch (const std::exception& error) {
    warn_once(fmt::format(
        "a point of the run could not be stored on this host, so it cannot replace another host: "
        "{}",
        message_of(error)));
  }
}

void RunMemory::take_over(comm::Communicator& comm) {
  // The ranks of a launcher have the same memory, so one of them is asked.
  std::optional<process::StoredPoint> own;
  if (place_.local_rank == 0) own = stored_->stored();
  const auto numbers = comm.vote(own ? own->sequence : 0);
  const auto newest = std::ranges::max_element(numbers);
  if (*newest == 0) {  // the run was lost before it stored anything
    unfinished_.reset();
    return;
  }
  const int owner = static_cast<int>(newest - numbers.begin());
  std::string bytes = owner == comm.rank() ? std::move(own->bytes) : std::string();
  if (owner != 0) bytes = comm.broadcast_bytes(bytes, owner);
  if (place_.local_rank == 0 && owner != 0) {
    take({.sequence = *newest, .bytes = bytes});
  }
  stored_->set_sequence(*newest);
  if (!comm.is_primary()) return;
  StoredContent content = StoredRun::decode(std::move(bytes));
  // Another run's, or a finished one: the failure was not this run's.
  if (content.identity != identity_ || content.is_finished) unfinished_.reset();
  if (content.identity != identity_) return;
  is_finished_ = content.is_finished;
  point_ = std::move(content.point);
  is_first_point_ = content.is_first_point;
  totals = stored_totals_ = content.totals;
  recoveries_ = content.recoveries;
  has_begun_logs_ = true;
  // This attempt may fail, too, before it has finished a batch.
  if (unfinished_ && unfinished_->repeated_batches) {
    stored_->count_batches(*unfinished_->repeated_batches);
  }
}

void RunMemory::share_point(comm::Communicator& comm) {
  const auto sequence = comm.vote(stored_->sequence()).front();
  std::string bytes;
  if (const auto own = stored_->stored(); own && comm.is_primary()) bytes = own->bytes;
  bytes = comm.broadcast_bytes(bytes);
  if (place_.local_rank != 0 || comm.is_primary() || bytes.empty()) return;
  take({.sequence = sequence, .bytes = bytes});
}

void RunMemory::begin_logs() {
  if (stored_ && !has_begun_logs_) store();
  has_begun_logs_ = true;
}

void RunMemory::store() {
  stored_totals_ = totals;
  store_again();
}

void RunMemory::store_again() {
  try {
    stored_->write({.identity = identity_,
                    .is_finished = is_finished_,
                    .point = point_,
                    .is_first_point = is_first_point_,
                    .totals = stored_totals_,
                    .recoveries = recoveries_});
  } catch (const std::exception& error) {
    warn_once(fmt::format("a point of the run could not be stored, so the one before stays: {}",
                          message_of(error)));
  }
}

void RunMemory::finish() {
  if (!stored_) return;
  is_finished_ = true;
  store();
}

void close_logger(Logger& logger, const RunEnd* end) noexcept {
  const auto attempt = [](const auto& call) {
    try {
      call();
    } catch (const std::exception& error) {
      warn(fmt::format("while a logger was closed: {}", message_of(error)));
    }
  };
  if (end != nullptr) attempt([&] { logger.end(*end); });
  attempt([&] { logger.close(); });
}

void RunMemory::close_loggers(const RunEnd* end) noexcept {
  for (const auto& logger : std::exchange(loggers_, {})) close_logger(*logger, end);
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
  if (point_) spare_ = std::move(point_->snapshot);
  point_ = std::move(point);
  is_first_point_ = false;
  note_log_positions();
  if (stored_) store();
  set_batches(0);
  set_next_point(began);
}

void RunMemory::count_batch() {
  set_batches(batches_since_point_ + 1);
  for (const auto& logger : loggers_) logger->next_batch();
}

void RunMemory::set_batches(std::int64_t since_point) {
  batches_since_point_ = since_point;
  if (stored_) stored_->count_batches(since_point);
}

void RunMemory::set_next_point(Clock::time_point began) {
  const auto now = Clock::now();
  next_point_ = now + kPointShare * (now - began);
  latest_point_ = next_point_ + kPointShare * (now - began);
}

std::optional<Recovery> RunMemory::complete_recovery() {
  if (!unfinished_) return std::nullopt;
  recoveries_ += 1;
  unfinished_->seconds = std::chrono::duration<double>(Clock::now() - failed_at_).count();
  if (stored_) store_again();  // another failure may come before the next point
  return std::exchange(unfinished_, std::nullopt);
}

void RunMemory::note_failure(const process::RankFailure& failure) {
  stored_->file().note_failure({.attempt = restarts(),
                                .rank = failure.rank,
                                .kind = failure.kind,
                                .epoch = failure.epoch > 0 ? failure.epoch : -1,
                                .batch = failure.epoch > 0 ? failure.batch : -1,
                                .reason = failure.reason});
}

bool RunMemory::will_restart(const process::RankFailure& failure, bool may_be_node) {
  decision_ = (is_elastic_ && may_be_node) || policy_.allows_another(failure);
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
  const bool is_allowed = *std::exchange(decision_, std::nullopt);
  if (is_allowed) std::this_thread::sleep_for(policy_.backoff());
  return is_allowed;
}

}  // namespace lockstep
