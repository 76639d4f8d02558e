#include "lockstep/data/batch_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/torch_threads.h"

namespace lockstep::data {

BatchThreads::BatchThreads(Make make, const BatchThreadsOptions& options)
    : make_(std::move(make)),
      options_(options),
      slots_(std::max<std::size_t>(1, std::min(options.ahead, options.batches))) {
  start(std::min({options_.threads, options_.batches, slots_.size()}));
}

// If a thread cannot be started, the destructors of the others end them.
void BatchThreads::start(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error& error) {
      throw WorkerError(
          "loader: threads: the system refused thread {} of {}: {}; use fewer, or raise the limit "
          "(ulimit -u)",
          i + 1, threads, error.what());
    }
  }
}

BatchThreads::~BatchThreads() {
  // All of them first: the destructor of the first one would wait while the others go on.
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

std::optional<Batch> BatchThreads::next() {
  std::unique_lock lock(mutex_);
  if (given_ == options_.batches) return std::nullopt;
  Slot& slot = slot_of(given_);
  made_.wait(lock, [&] { return slot.is_made; });
  if (slot.error) std::rethrow_exception(slot.error);
  if (!slot.batch) return std::nullopt;
  Batch batch = *std::exchange(slot, Slot()).batch;
  ++given_;
  lock.unlock();
  room_changed_.notify_one();
  return batch;
}

void BatchThreads::run(const std::stop_token& stop) {
  if (options_.one_torch_thread) use_one_torch_thread();
  while (const std::optional<std::size_t> batch = claim(stop)) {
    Slot made = make_slot(*batch);
    const std::lock_guard lock(mutex_);
    if (!made.batch) {
      ended_ = true;
      room_changed_.notify_all();
    }
    slot_of(*batch) = std::move(made);
    if (*batch == given_) made_.notify_one();
  }
}

// Nothing if there is nothing left to do. Batches are claimed in their order, so if one fails or is
// not there, all those before it are made.
std::optional<std::size_t> BatchThreads::claim(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_ || claimed_ == options_.batches; };
  room_changed_.wait(lock, stop, [&] { return ended() || claimed_ < given_ + slots_.size(); });
  if (stop.stop_requested() || ended()) return std::nullopt;
  return claimed_++;
}

BatchThreads::Slot BatchThreads::make_slot(std::size_t batch) const {
  Slot slot;
  try {
    slot.batch = make_(batch);
  } catch (...) {
    slot.error = std::current_exception();
  }
  slot.is_made = true;
  return slot;
}

}  // namespace lockstep::data
