#include "lockstep/engine/background_sums.h"

#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep {
namespace {

std::optional<c10::Stream> current_stream(const torch::Tensor& tensor) {
  const torch::Device device = tensor.device();
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

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
  Sum sum{.parts = std::move(parts), .stream = std::nullopt};
  if (!sum.parts.tensors.empty()) {
    const torch::Tensor& first = sum.parts.tensors.front();
    sum.stream = current_stream(first);
    sum.parts.after = communicator_.ready(first);
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(sum));
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
    const Sum sum = std::move(waiting_.front());
    waiting_.pop_front();
    if (error_ == nullptr) {
      lock.unlock();
      std::exception_ptr error;
      try {
        // A new thread has the first device and its default stream.
        std::optional<c10::StreamGuard> guard;
        if (sum.stream) guard.emplace(*sum.stream);
        communicator_.sum_parts(sum.parts, sum.parts.tensors.front());
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
