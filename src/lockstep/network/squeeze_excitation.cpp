#include "lockstep/network/squeeze_excitation.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"

namespace lockstep::network {

SqueezeExcitationImpl::SqueezeExcitationImpl(SqueezeExcitationOptions options) {
  const Check check("SqueezeExcitation");
  check.count("channels", options.channels);
  check.count("reduction", options.reduction);
  const std::int64_t inner = std::max<std::int64_t>(options.channels / options.reduction, 1);
  squeeze_ = register_module("squeeze", torch::nn::Linear(options.channels, inner));
  excite_ = register_module("excite", torch::nn::Linear(inner, options.channels));
  if (!options.spatial) return;
  position_ = register_module("position", torch::nn::Linear(options.channels, 1));
}

torch::Tensor SqueezeExcitationImpl::forward(const torch::Tensor& x) {
  if (x.dim() < 3) {
    throw DataError("SqueezeExcitation: expected an input [N, C, …] with positions, got {}",
                    data::describe(x));
  }
  const torch::Tensor flat = x.flatten(2);
  torch::Tensor scales = torch::sigmoid(excite_(squeeze_(flat.mean(-1)).relu())).unsqueeze(-1);
  if (position_) scales = scales + torch::sigmoid(position_(flat.transpose(1, 2))).transpose(1, 2);
  return (flat * scales).view_as(x);
}

}  // namespace lockstep::network
