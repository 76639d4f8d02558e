#include "lockstep/optim/cuda_updates.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/cuda_kernels.h"

namespace lockstep::optim {
namespace {

template <typename T, typename Update>
void launch_on(const Update& update, const UpdateTensors& tensors, const ElementRange& range) {
  const kernels::Arrays<T> arrays = arrays_of<T>(tensors);
  const c10::cuda::CUDAGuard guard(tensors.values.device());
  const int status =
      cuda::launch(update, arrays, {.begin = range.begin, .end = range.end},
                   c10::cuda::getCurrentCUDAStream(tensors.values.device().index()).stream());
  if (status == cudaSuccess) return;
  throw Error("{}: the kernel of an optimizer cannot be started: {}", tensors.values.device().str(),
              cudaGetErrorString(static_cast<cudaError_t>(status)));
}

}  // namespace

template <typename Update>
bool apply_on_gpu(const Update& update, const UpdateTensors& tensors, const ElementRange& range) {
  if (!tensors.values.is_cuda()) return false;
  switch (tensors.values.scalar_type()) {
    case torch::kFloat32:
      launch_on<float>(update, tensors, range);
      return true;
    case torch::kFloat64:
      launch_on<double>(update, tensors, range);
      return true;
    default:
      return false;
  }
}

#define LOCKSTEP_INSTANTIATE(Update) \
  template bool apply_on_gpu(const Update&, const UpdateTensors&, const ElementRange&);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::optim
