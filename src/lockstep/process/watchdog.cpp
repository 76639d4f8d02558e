#include "lockstep/process/watchdog.h"

#include <algorithm>
#include <cstdio>
#include <system_error>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/process/background.h"

namespace lockstep::process {

Watchdog::Watchdog(WatchdogOptions options) : options_(std::move(options)) {
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {
    throw WorkerError("{}: cannot start a thread: {}; {}", options_.work, error.what(),
                      options_.hint);
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::watch() {
  enter_background_thread("lockstep watch");
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kCheckInterval(100);
  std::chrono::nanoseconds waited{0};
  std::unique_lock lock(mutex_);
  while (waited < options_.timeout) {
    const auto start = Clock::now();
    if (changed_.wait_for(lock, std::min(kCheckInterval, options_.timeout),
                          [this] { return done_; }))
      return;
    // Each turn counts at most two ticks: the process may have been stopped (Ctrl-Z) in between.
    waited += std::min<std::chrono::nanoseconds>(Clock::now() - start, 2 * kCheckInterval);
  }
  const std::string reason = fmt::format("{} did not end within {}; {}", options_.work,
                                         format_duration(options_.timeout), options_.hint);
  if (options_.on_hang) options_.on_hang(reason);
  // Not through stderr's buffer: the thread that hangs may hold its lock.
  ::dprintf(STDERR_FILENO, "lockstep: %s\n", reason.c_str());
  ::_exit(1);
}

}  // namespace lockstep::process
