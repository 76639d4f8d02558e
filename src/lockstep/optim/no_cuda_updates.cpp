// What a build without CUDA has instead of cuda_updates.cpp.
#include "lockstep/optim/cuda_updates.h"

namespace lockstep::optim {

bool apply_on_gpu(const AdamUpdate&, const UpdateTensors&, const ElementRange&) {
  return false;
}

bool apply_on_gpu(const SGDUpdate&, const UpdateTensors&, const ElementRange&) {
  return false;
}

bool apply_on_gpu(const RMSpropUpdate&, const UpdateTensors&, const ElementRange&) {
  return false;
}

bool apply_on_gpu(const AdagradUpdate&, const UpdateTensors&, const ElementRange&) {
  return false;
}

}  // namespace lockstep::optim
