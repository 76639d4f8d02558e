// What a build without CUDA has instead of cuda_updates.cpp.
#include "lockstep/optim/cuda_updates.h"

namespace lockstep::optim {

template <typename Update>
bool apply_on_gpu(const Update&, const UpdateTensors&, const ElementRange&) {
  return false;
}

#define LOCKSTEP_INSTANTIATE(Update) \
  template bool apply_on_gpu(const Update&, const UpdateTensors&, const ElementRange&);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::optim
