// Ends this process if a piece of the library's own work hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::process {

struct WatchdogOptions {
  std::string work;  // name of the watched work in the message: "setting up LibTorch's threads"
  std::string hint;  // what the user can check if the work hangs
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Called in the watchdog's thread before the process ends, to report the failure to other ranks.
  std::function<void(const std::string& reason)> on_hang;
};

// Watches the work that is done between its constructor and its destructor. Work that does not end
// within the time limit cannot be interrupted by an exception. So the reason is written to standard
// error, and the process ends with code 1, without calling destructors. The time in which the
// process was stopped (Ctrl-Z) does not count.
//
// The watchdog does not depend on other ranks, so it also works if all ranks hang. Use it only for
// work that is known to end soon, never for a user's code.
class Watchdog {
 public:
  // Throws WorkerError if its thread cannot be started.
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
