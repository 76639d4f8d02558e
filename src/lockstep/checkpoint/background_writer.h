// Writes files in a thread, while the caller computes other things.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace lockstep::checkpoint {

// Runs one job at a time, in the order in which they were submitted. One thread may call.
//
// There is a thread only while a job runs, and there is no lock. So after wait() the process may
// fork, and the child may use a writer of its own, or destroy its copy of this one. A process must
// not fork children that do so while a job runs.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  // Waits for the job. What it threw becomes a warning.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Waits for the job before and throws what it threw; then starts this one. If the system has no
  // thread left, the job runs in the calling thread.
  void submit(std::function<void()> job);

  // Whether no job runs. If so, wait() returns at once.
  bool finished() const { return done_.load(std::memory_order_acquire); }

  // Waits until no job runs. Throws what the job threw, once. It takes as long as the file system
  // takes to write.
  void wait();

 private:
  void run() noexcept;

  std::function<void()> job_;
  std::exception_ptr error_;
  std::atomic<bool> done_ = true;
  std::thread thread_;
};

}  // namespace lockstep::checkpoint
