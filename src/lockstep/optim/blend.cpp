#include "lockstep/optim/blend.h"

#include <cstdint>

#include <torch/utils.h>

#include "lockstep/compute/parallel.h"
#include "lockstep/optim/kernels.h"

namespace lockstep::optim {
namespace {

constexpr std::int64_t kBlendGrain = 1 << 16;  // elements; fewer are not worth a thread

template <typename T>
void blend_arrays(const torch::Tensor& values, const torch::Tensor& others, double weight) {
  T* const to = values.data_ptr<T>();
  const T* const from = others.data_ptr<T>();
  compute::for_ranges({.size = values.numel(), .grain = kBlendGrain},
                      [&](std::int64_t begin, std::int64_t end) {
                        kernels::blend(to, from, weight, {.begin = begin, .end = end});
                      });
}

bool is_plain(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.device().is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous();
}

}  // namespace

void blend(const torch::Tensor& values, const torch::Tensor& others, double weight) {
  const torch::NoGradGuard no_grad;
  const torch::ScalarType type = values.scalar_type();
  if (weight == 1.0 || !(values.is_floating_point() || values.is_complex())) {
    values.copy_(others);
  } else if (type == torch::kFloat32 && is_plain(values, type) && is_plain(others, type)) {
    blend_arrays<float>(values, others, weight);
  } else if (type == torch::kFloat64 && is_plain(values, type) && is_plain(others, type)) {
    blend_arrays<double>(values, others, weight);
  } else {
    // Products and sums apart, so that nothing is fused. Numbers of 16 bits are rounded once.
    const bool is_short = type == torch::kHalf || type == torch::kBFloat16;
    const torch::Tensor before = is_short ? values.to(torch::kFloat32) : values;
    values.copy_(before + (others.to(before.scalar_type()) - before).mul(weight));
  }
}

}  // namespace lockstep::optim
