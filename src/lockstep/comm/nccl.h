// The data plane between GPUs of NVIDIA. A build whose LibTorch has no CUDA takes no_nccl.cpp
// instead of nccl.cpp.
#pragma once

#include "lockstep/comm/device_plane.h"

namespace lockstep::comm {

// Lives as long as the process. Null in a build without NCCL.
const PlaneFactory* nccl_planes();

}  // namespace lockstep::comm
