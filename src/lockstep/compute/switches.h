// What makes training faster without changing what is trained, each with a switch, for comparison:
//
//   LOCKSTEP_DISABLE=plan,pool build/bin/mnist
#pragma once

#include <cstdint>

namespace lockstep::compute {

enum class Speedup : std::uint8_t {
  kPlan,       // a Sequential of known layers is run without autograd inside
  kPatches,    // in a plan, convolutions with few inputs an output are matrix products
  kPool,       // max pooling by vectorised kernels, outside of a plan
  kMemory,     // big tensors' memory is kept by the process
  kDenormals,  // numbers below 1e-38 are zero
};

// Whether LOCKSTEP_DISABLE leaves it on; a name there that is none of plan, patches, pool, memory
// and denormals is a ConfigError.
bool is_enabled(Speedup speedup);

// Off in this thread while it lives.
class WithoutSpeedup {
 public:
  explicit WithoutSpeedup(Speedup speedup);
  ~WithoutSpeedup();
  WithoutSpeedup(const WithoutSpeedup&) = delete;
  WithoutSpeedup& operator=(const WithoutSpeedup&) = delete;

 private:
  std::uint8_t previous_;
};

}  // namespace lockstep::compute
