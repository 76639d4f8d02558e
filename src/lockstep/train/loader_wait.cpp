#include "lockstep/train/loader_wait.h"

#include <fmt/format.h>

namespace lockstep {

std::string advice_on_wait(const LoaderWait& wait) {
  constexpr double kMostWaiting = 0.3;
  if (wait.seconds <= 0 || wait.waited <= kMostWaiting * wait.seconds) return "";
  const std::string text = fmt::format(
      "loader '{}': {:.0f} % of the pass ({:.3g} of {:.3g} s) were spent waiting for batches. ",
      wait.loader, 100 * wait.waited / wait.seconds, wait.waited, wait.seconds);
  if (wait.is_stream && wait.prefetch == 0) {
    return text +
           "Set the loader's prefetch to 2 (now 0), so that another thread reads the stream while "
           "this one trains";
  }
  if (wait.is_stream) {
    return text +
           "A thread already reads the stream ahead: make next() of its source cheaper, and also "
           "skip() if share_of() divides it";
  }
  const std::string cache = "keep decoded samples in memory (data::cached, Cached in a config)";
  if (wait.threads < wait.cores) {
    return text + fmt::format("Set the loader's threads to {} (now {}), or {}", wait.cores,
                              wait.threads, cache);
  }
  return text + fmt::format(
                    "Its {} threads already have all {} cores of the worker: {}, or make "
                    "the transforms cheaper",
                    wait.threads, wait.cores, cache);
}

}  // namespace lockstep
