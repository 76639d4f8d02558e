// Focal losses (Lin et al. 2017): cross entropy in which examples that the model already gets right
// count less. For classes of very different frequency.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/loss/over.h"

namespace lockstep {

struct FocalLossOptions {
  double gamma = 2.0;                // how much less; 0: cross entropy
  std::vector<double> weight = {};   // of each class; none: all the same
  std::int64_t ignore_index = -100;  // a class that does not count
};

// For scores [N, C, …] and classes [N, …]: weight[class] (1 - p)^gamma (-log p), where p is the
// probability of the right class. A mean over the targets that are not ignored; the weights are not
// divided out.
class FocalLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a negative gamma or weight.
  explicit FocalLossImpl(FocalLossOptions options = {});

  // Throws ConfigError if the shapes do not fit.
  torch::Tensor forward(const torch::Tensor& scores, const torch::Tensor& classes) const;
  LossOver over(const torch::Tensor& scores, const torch::Tensor& classes) const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  FocalLossOptions options_;
  torch::Tensor weight_;  // a buffer; undefined without weights
};
TORCH_MODULE(FocalLoss);

struct BinaryFocalLossOptions {
  double gamma = 2.0;                // how much less; 0: binary cross entropy
  std::optional<double> alpha = {};  // weight of targets that are 1, others have 1 - alpha
};

// For scores and targets in [0, 1] of the same shape, one decision per element. A mean over all
// elements.
class BinaryFocalLossImpl : public torch::nn::Module, public StatedLoss {
 public:
  // Throws ConfigError for a negative gamma, and for an alpha outside of [0, 1].
  explicit BinaryFocalLossImpl(BinaryFocalLossOptions options = {});

  // Throws ConfigError if the shapes differ or the targets are integers.
  torch::Tensor forward(const torch::Tensor& scores, const torch::Tensor& targets) const;
  void pretty_print(std::ostream& stream) const override;

 private:
  BinaryFocalLossOptions options_;
};
TORCH_MODULE(BinaryFocalLoss);

}  // namespace lockstep
