// Sets the number of LibTorch's threads for the duration of a run.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace lockstep {

struct ThreadScopeOptions {
  int threads = 1;
  // The time limit for LibTorch to start the threads. Its thread pool waits for ever if the system
  // refuses a thread.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Called if that takes longer, before this process ends (process::Watchdog). It should report the
  // reason to the other ranks.
  std::function<void(const std::string& reason)> on_hang;
};

// Sets the number of LibTorch's threads. The destructor sets it back.
class ThreadScope {
 public:
  // Throws WorkerError if the system refuses a thread.
  explicit ThreadScope(ThreadScopeOptions options);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  void set(int threads) const;

  ThreadScopeOptions options_;
  int before_;
};

}  // namespace lockstep
