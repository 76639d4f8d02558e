// Notices that code draws random numbers from LibTorch's global generator.
#pragma once

#include <cstdint>

namespace lockstep::data {

// Watches the LibTorch operations of the thread that made it, until it is destroyed in the same
// thread. Operations of other threads do not count. While it exists, each operation costs about a
// microsecond more.
class GlobalDrawProbe {
 public:
  GlobalDrawProbe();
  ~GlobalDrawProbe();
  GlobalDrawProbe(const GlobalDrawProbe&) = delete;
  GlobalDrawProbe& operator=(const GlobalDrawProbe&) = delete;

  // Whether an operation drew from the global CPU generator.
  bool drew() const;

 private:
  std::uint64_t callback_;
};

}  // namespace lockstep::data
