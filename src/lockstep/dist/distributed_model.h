// A model that all ranks train together, and the call that averages its gradients.
#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/train/model.h"

namespace lockstep::dist {

// Collective, after backward() and before the optimizer's step. Each gradient is replaced by its
// mean over all ranks, with the same bits on each rank. It costs one message per data type.
// `weight` is this rank's weight in the mean. If batches differ in size, pass the number of samples
// in this rank's batch (0 if it had none): then the result is the gradient of the mean loss over
// all samples.
//
// If a parameter has no gradient on this rank, it counts as zero. It gets a gradient if another
// rank has one.
void average_gradients(const std::vector<torch::Tensor>& parameters, double weight = 1);

// Copies of this object share one model.
class DistributedModel {
 public:
  // Collective: all ranks get rank 0's parameters and buffers. After that, average_gradients() and
  // equal optimizer steps keep the parameters the same on all ranks. Buffers (for example running
  // means of batch norm) are not kept the same.
  explicit DistributedModel(Model model);

  const Model& model() const { return model_; }
  torch::Tensor operator()(const torch::Tensor& input) const { return model_(input); }

  // Calls dist::average_gradients() for the model's parameters. No hook does this: if a program
  // does not call it, each rank trains separately.
  void average_gradients(double weight = 1) const;

 private:
  Model model_;
};

// Collective.
inline DistributedModel prepare_ddp_model(Model model) {
  return DistributedModel(std::move(model));
}

}  // namespace lockstep::dist
