// Optimisations that make training faster. Results with and without them agree within rounding, not
// always to the bit (docs/decisions/speed.md). Each can be switched off, for comparison:
//
//   LOCKSTEP_DISABLE=plan,pool build/bin/mnist
#pragma once

#include <cstdint>

namespace lockstep::compute {

enum class Speedup : std::uint8_t {
  kPlan,       // a Sequential of known layers is run without autograd inside
  kPatches,    // in a plan, convolutions with few inputs per output are matrix products
  kPool,       // max pooling by vectorised kernels, outside of a plan
  kMemory,     // the process keeps the memory of big tensors
  kDenormals,  // numbers below 1e-38 are zero
};

// Whether the optimisation is on, that is not listed in LOCKSTEP_DISABLE. A name there other than
// plan, patches, pool, memory and denormals is a ConfigError.
bool is_enabled(Speedup speedup);

// Switches an optimisation off in this thread while the object lives.
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
