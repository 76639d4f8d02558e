// RMSNorm: LayerNorm without the mean.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep::network {

struct RMSNormOptions {
  std::int64_t features = 0;       // of the last dimension; required
  double eps = 1e-6;               // added to the mean square
  bool elementwise_affine = true;  // whether it learns scales
};

// x / sqrt(mean(x^2) + eps) over the last dimension, times a scale for each feature (Zhang and
// Sennrich 2019).
class RMSNormImpl : public torch::nn::Module {
 public:
  // Throws ConfigError for features or an eps that are not positive.
  explicit RMSNormImpl(RMSNormOptions options);

  // Throws DataError if the last dimension has another size.
  torch::Tensor forward(const torch::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

 private:
  RMSNormOptions options_;
  torch::Tensor weight_;  // undefined without scales
};
TORCH_MODULE(RMSNorm);

}  // namespace lockstep::network
