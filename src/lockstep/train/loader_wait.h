// Whether a pass waited too long for its batches, and what to change.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct LoaderWait {
  std::string loader;         // its name
  double seconds = 0;         // of the whole pass
  double waited = 0;          // of these, until batches were ready
  bool is_stream = false;     // it is read by one thread
  std::int64_t prefetch = 0;  // of the loader
  std::int64_t threads = 0;   // of the loader, in this worker
  int cores = 1;              // that this worker can use
};

// A warning if more than 30 % of the pass were spent waiting, else empty.
std::string advice_on_wait(const LoaderWait& wait);

}  // namespace lockstep
