// The contrastive loss of SimCLR (Chen et al. 2020): the normalised temperature-scaled cross
// entropy.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/loss/over.h"

namespace lockstep {

struct NTXentLossOptions {
  double temperature = 0.5;  // similarities are divided by it
};

// For two projections [N, D] of the same N samples. Each of the 2 N rows has to be more similar to
// the other projection of its sample than to all other rows: the loss is the cross entropy over the
// cosines of the angles between rows, a mean over the rows.
class NTXentLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a temperature that is not positive.
  explicit NTXentLossImpl(NTXentLossOptions options = {});

  // Throws ConfigError if the shapes are not equal, or not [N, D].
  torch::Tensor forward(const torch::Tensor& left, const torch::Tensor& right) const;
  bool mixes_samples() const override { return true; }
  void pretty_print(std::ostream& stream) const override;

 private:
  NTXentLossOptions options_;
};
TORCH_MODULE(NTXentLoss);

}  // namespace lockstep
