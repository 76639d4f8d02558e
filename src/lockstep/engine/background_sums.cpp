#include "lockstep/engine/background_sums.h"

#include <utility>

namespace lockstep {

BackgroundSums::~BackgroundSums() {
  if (registered_) communicator_.set_background({});
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundSums::add(comm::Parts parts) {
  if (!std::exchange(registered_, true)) {
    communicator_.set_background([this] { wait(); });
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(parts));
    ++added_;
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void BackgroundSums::finish() {
  if (!registered_) return;
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_ == added_; });
    error = std::exchange(error_, nullptr);
  }
  registered_ = false;
  communicator_.set_background({});
  if (error != nullptr) std::rethrow_exception(error);
}

void BackgroundSums::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ == added_; });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void BackgroundSums::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const comm::Parts parts = std::move(waiting_.front());
    waiting_.pop_front();
    if (error_ == nullptr) {
      lock.unlock();
      std::exception_ptr error;
      try {
        communicator_.sum_parts(parts, parts.tensors.front());
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
    }
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace lockstep
