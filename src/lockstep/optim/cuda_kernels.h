// The fused updates of kernels.h on a GPU: one kernel per update, over arrays in the GPU's memory.
// The formulas are those of the CPU, without fused multiply-adds. Square roots and divisions are
// rounded as on the CPU, so results differ only where the CPU flushes denormal numbers to zero.
//
// This file does not include torch or CUDA: nvcc compiles the kernels, and g++ compiles the calls.
#pragma once

#include "lockstep/optim/kernels.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim::cuda {

// Puts the update into the stream, a cudaStream_t of the current device, and returns at once. The
// result is a cudaError_t: 0 if the kernel was started. For float and double, and for every update
// in LOCKSTEP_FOR_EACH_UPDATE.
template <typename T, typename Update>
int launch(const Update& update, const kernels::Arrays<T>& arrays, const kernels::IndexRange& range,
           void* stream);

}  // namespace lockstep::optim::cuda
