// Squeeze-and-excitation: a layer that scales channels, and positions if you like, by numbers that
// depend on the input.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep::network {

struct SqueezeExcitationOptions {
  std::int64_t channels = 0;    // of the input; required
  std::int64_t reduction = 16;  // the inner layer has channels / reduction features, at least one
  bool spatial = false;         // adds the input scaled by one number for each position
};

// For [N, C, …], with any number of dimensions behind the channels: x times sigmoid(W2 relu(W1
// mean(x))), one number for each channel (Hu et al. 2018). With `spatial`, plus x times sigmoid(W3
// x), one number for each position (Roy et al. 2018).
class SqueezeExcitationImpl : public torch::nn::Module {
 public:
  // Throws ConfigError for numbers that are not positive.
  explicit SqueezeExcitationImpl(SqueezeExcitationOptions options);

  // Throws DataError for an input that has no positions.
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::Linear squeeze_{nullptr};
  torch::nn::Linear excite_{nullptr};
  torch::nn::Linear position_{nullptr};  // with `spatial`
};
TORCH_MODULE(SqueezeExcitation);

}  // namespace lockstep::network
