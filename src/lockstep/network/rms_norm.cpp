#include "lockstep/network/rms_norm.h"

#include <ostream>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::network {

RMSNormImpl::RMSNormImpl(RMSNormOptions options) : options_(options) {
  const Check check("RMSNorm");
  check.count("features", options_.features);
  check.positive("eps", options_.eps);
  if (!options_.elementwise_affine) return;
  weight_ = register_parameter("weight", torch::ones({options_.features}));
}

torch::Tensor RMSNormImpl::forward(const torch::Tensor& x) {
  if (x.dim() < 1 || x.size(-1) != options_.features) {
    throw DataError("RMSNorm: expected {} features in the last dimension, got {}",
                    options_.features, data::describe(x));
  }
  const torch::Tensor scaled = x * (x.square().mean(-1, /*keepdim=*/true) + options_.eps).rsqrt();
  return weight_.defined() ? scaled * weight_ : scaled;
}

void RMSNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("RMSNorm({}, eps={}, elementwise_affine={})", options_.features,
                        options_.eps, options_.elementwise_affine);
}

}  // namespace lockstep::network
