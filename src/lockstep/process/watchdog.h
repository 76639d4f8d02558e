// Ends this process where a piece of the library's own work hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::process {

struct WatchdogOptions {
  std::string work;  // that is watched, for the message: "setting up LibTorch's threads"
  std::string hint;  // what the user can look at, where it hangs
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Called in the watchdog's thread before the process ends: the other ranks are told here.
  std::function<void(const std::string& reason)> on_hang;
};

// Watches the work that is done while it lives. Work that does not end within the time limit cannot
// be interrupted by an exception: the reason goes to standard error, and the process ends with code
// 1, without destructors. The time in which the process was stopped (Ctrl-Z) does not count.
//
// It needs no other rank to notice, so that it is right also where all ranks hang. It is for work
// of which we know that it ends soon; never for a user's code.
class Watchdog {
 public:
  // Throws WorkerError where its thread cannot be started.
  explicit Watchdog(WatchdogOptions options);
  // The work is done.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  WatchdogOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace lockstep::process
