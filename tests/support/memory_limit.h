// A limit of the memory that a test may take.
#pragma once

#include <cstdint>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "tests/support/slowdown.h"

namespace lockstep {

// The bytes of private memory that this process has: heap and stacks, used or not. Files that are
// mapped to be read are not counted.
inline std::uint64_t private_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  if (!file) throw Error("cannot read /proc/self/statm");
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// While it exists, the process cannot take more private memory than `more` bytes: then malloc() and
// mmap() fail. It has no effect with sanitizers, which need memory for themselves.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t more) {
    if (::getrlimit(RLIMIT_DATA, &before_) != 0) throw Error("cannot read the limit of memory");
    if (kHasAddressSanitizer || kHasThreadSanitizer) return;
    const rlimit limit = {.rlim_cur = private_bytes() + more, .rlim_max = before_.rlim_max};
    if (::setrlimit(RLIMIT_DATA, &limit) != 0) throw Error("cannot limit the memory");
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace lockstep
