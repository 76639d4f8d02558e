// How the process's memory and arithmetic are set up for training.
#pragma once

namespace lockstep::compute {

// For the rest of the process: glibc keeps the memory of big tensors instead of giving it back to
// the kernel at every step, which would clear and map it anew.
void keep_memory();

// While it lives, this thread and those that LibTorch's operations use with it take numbers below
// 1e-38 as zero: arithmetic with them is many times slower, and the moments of an optimizer get
// there where a gradient stays away. On x86; elsewhere it does nothing.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned previous_ = 0;
};

}  // namespace lockstep::compute
