// LibTorch's threads for the length of a run.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace lockstep {

struct ThreadScopeOptions {
  int threads = 1;
  // For LibTorch to start them. Its thread pool waits for ever where the system refuses a thread.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Called where it does not, before this process ends (process::Watchdog): tells the other ranks.
  std::function<void(const std::string& reason)> on_hang;
};

// Sets the number of LibTorch's threads, and sets it back at its end.
class ThreadScope {
 public:
  // Throws WorkerError where the system gives no thread.
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
