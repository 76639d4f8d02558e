// Takes the place of nccl.cpp in a build whose LibTorch has no CUDA.
#include "lockstep/comm/nccl.h"

namespace lockstep::comm {

const PlaneFactory* nccl_planes() {
  return nullptr;
}

}  // namespace lockstep::comm
