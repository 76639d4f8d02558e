#include "lockstep/engine/thread_scope.h"

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/watchdog.h"

namespace lockstep {

ThreadScope::ThreadScope(ThreadScopeOptions options)
    : options_(std::move(options)), before_(torch::get_num_threads()) {
  set(options_.threads);
}

ThreadScope::~ThreadScope() {
  if (before_ == options_.threads) return;
  try {
    set(before_);
  } catch (const WorkerError& error) {
    warn_once(fmt::format("LibTorch keeps {} threads: {}", options_.threads, error.what()));
  }
}

void ThreadScope::set(int threads) const {
  const process::Watchdog watchdog({.work = "setting up LibTorch's threads",
                                    .hint = "is the number of threads limited (ulimit -u)?",
                                    .timeout = options_.timeout,
                                    .on_hang = options_.on_hang});
  torch::set_num_threads(threads);
}

}  // namespace lockstep
