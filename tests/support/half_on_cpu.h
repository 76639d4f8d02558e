// Whether this LibTorch computes in fp16 on the CPU. Lockstep refuses it below 2.3.
#pragma once

#include <torch/version.h>

namespace lockstep {

constexpr bool kCpuHasHalf = TORCH_VERSION_MAJOR > 2 ||
                             (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3);

}  // namespace lockstep
