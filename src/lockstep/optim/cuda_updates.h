// Updates on a GPU as one kernel each. A build without CUDA has no_cuda_updates.cpp instead of
// cuda_updates.cpp.
#pragma once

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/tensor_updates.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {

// Updates the range of the tensors by one kernel in the current stream of their device, and returns
// true. Returns false and does nothing if there is no such kernel: the tensors are not on a GPU of
// NVIDIA, are neither float nor double, or this build is without CUDA. Throws Error if the kernel
// cannot be started.
//
// For every update in LOCKSTEP_FOR_EACH_UPDATE.
template <typename Update>
bool apply_on_gpu(const Update& update, const UpdateTensors& tensors, const ElementRange& range);

}  // namespace lockstep::optim
