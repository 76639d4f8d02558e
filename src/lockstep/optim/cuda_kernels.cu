#include <algorithm>

#include <cuda_runtime.h>

#include "lockstep/optim/cuda_kernels.h"
#include "lockstep/optim/update_formulas.h"

namespace lockstep::optim::cuda {
namespace {

using kernels::Arrays;
using kernels::IndexRange;

template <typename T, typename Formula>
__global__ void update_elements(Formula formula, T* __restrict__ values, T* __restrict__ grads,
                                T* __restrict__ first, T* __restrict__ second,
                                T* __restrict__ third, std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = begin + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < end; i += stride) {
    formula(values, grads, first, second, third, i);
  }
}

}  // namespace

template <typename T, typename Update>
int launch(const Update& update, const Arrays<T>& arrays, const IndexRange& range, void* stream) {
  if (range.end <= range.begin) return cudaSuccess;
  // Enough blocks to fill any GPU; each thread takes several elements of longer arrays.
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kMostBlocks = 4096;
  const std::int64_t blocks =
      std::min(kMostBlocks, (range.end - range.begin + kThreads - 1) / kThreads);
  kernels::with_formula(update, arrays, [&](const auto& formula) {
    update_elements<T>
        <<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            formula, arrays.values, arrays.grads, arrays.state[0], arrays.state[1], arrays.state[2],
            range.begin, range.end);
  });
  return cudaGetLastError();
}

#define LOCKSTEP_INSTANTIATE(Update)                                                    \
  template int launch(const Update&, const Arrays<float>&, const IndexRange&, void*);   \
  template int launch(const Update&, const Arrays<double>&, const IndexRange&, void*);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::optim::cuda
