#include "lockstep/checkpoint/background_writer.h"

#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/background.h"

namespace lockstep::checkpoint {

BackgroundWriter::~BackgroundWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    warn(fmt::format("while a checkpoint was written: {}", message_of(error)));
  } catch (...) {
    warn("while a checkpoint was written, something that is no exception was thrown");
  }
}

void BackgroundWriter::submit(std::function<void()> job) {
  wait();
  job_ = std::move(job);
  done_.store(false, std::memory_order_relaxed);  // starting the thread publishes it
  try {
    thread_ = std::thread([this] {
      process::enter_background_thread("lockstep save");
      run();
    });
  } catch (const std::system_error&) {
    run();
  }
}

void BackgroundWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) {
    std::rethrow_exception(error);
  }
}

void BackgroundWriter::run() noexcept {
  try {
    job_();
  } catch (...) {
    error_ = std::current_exception();
  }
  job_ = nullptr;  // what the job holds is free when the caller sees that it is done
  done_.store(true, std::memory_order_release);
}

}  // namespace lockstep::checkpoint
