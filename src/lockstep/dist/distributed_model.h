// A model that is trained by all ranks, with the one call that keeps it so.
#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/train/model.h"

namespace lockstep::dist {

// Collective, after backward() and before the optimizer's step: gradients become their mean over
// all ranks, the same bits on each, in one message. Each rank's count by its `weight`: where
// batches differ in size, say how many samples this rank's had (0 where it had none), and the
// result is the gradient of the mean loss over all of them.
//
// A parameter without a gradient here counts as zero, and gets one where another rank has one.
void average_gradients(const std::vector<torch::Tensor>& parameters, double weight = 1);

// Copies share one model.
class DistributedModel {
 public:
  // Collective: all ranks go on with rank 0's parameters and buffers. Later the parameters stay the
  // same by average_gradients() and equal steps; buffers (running means of batch norm, say) are
  // each rank's own.
  explicit DistributedModel(Model model);

  const Model& model() const { return model_; }
  torch::Tensor operator()(const torch::Tensor& input) const { return model_(input); }

  // dist::average_gradients() of its parameters. There are no hooks: who forgets it trains alone.
  void average_gradients(double weight = 1) const;

 private:
  Model model_;
};

// Collective.
inline DistributedModel prepare_ddp_model(Model model) {
  return DistributedModel(std::move(model));
}

}  // namespace lockstep::dist
