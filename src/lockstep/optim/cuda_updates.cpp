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
  kernels::Arrays<T> arrays{.values = tensors.values.data_ptr<T>(),
                            .grads = tensors.grads.data_ptr<T>()};
  for (std::size_t i = 0; i < arrays.state.size(); ++i) {
    if (tensors.state[i].defined()) arrays.state[i] = tensors.state[i].data_ptr<T>();
  }
  const c10::cuda::CUDAGuard guard(tensors.values.device());
  const int status =
      cuda::launch(update, arrays, {.begin = range.begin, .end = range.end},
                   c10::cuda::getCurrentCUDAStream(tensors.values.device().index()).stream());
  if (status == cudaSuccess) return;
  throw Error("{}: the kernel of an optimizer cannot be started: {}", tensors.values.device().str(),
              cudaGetErrorString(static_cast<cudaError_t>(status)));
}

template <typename Update>
bool apply_fused_on_gpu(const Update& update, const UpdateTensors& tensors,
                        const ElementRange& range) {
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

}  // namespace

bool apply_on_gpu(const AdamUpdate& update, const UpdateTensors& tensors,
                  const ElementRange& range) {
  return apply_fused_on_gpu(update, tensors, range);
}

bool apply_on_gpu(const SGDUpdate& update, const UpdateTensors& tensors,
                  const ElementRange& range) {
  return apply_fused_on_gpu(update, tensors, range);
}

bool apply_on_gpu(const RMSpropUpdate& update, const UpdateTensors& tensors,
                  const ElementRange& range) {
  return apply_fused_on_gpu(update, tensors, range);
}

bool apply_on_gpu(const AdagradUpdate& update, const UpdateTensors& tensors,
                  const ElementRange& range) {
  return apply_fused_on_gpu(update, tensors, range);
}

}  // namespace lockstep::optim
