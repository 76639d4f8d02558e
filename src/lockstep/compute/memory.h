// Settings of the process's memory and arithmetic for training.
#pragma once

namespace lockstep::compute {

// For the rest of the process, glibc keeps the memory of big tensors. Otherwise it would return the
// memory to the kernel at every step, and the kernel would clear and map it again.
void keep_memory();

// While this object lives, this thread and the threads of LibTorch's operations that it starts
// treat numbers below 1e-38 as zero. Arithmetic with such numbers is many times slower, and an
// optimizer's moments become that small if a gradient stays zero. Works on x86; elsewhere it does
// nothing.
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
