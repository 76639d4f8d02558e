// Runs a Sequential of known layers as one operation: its forward and backward run layer by layer
// in memory that the next step uses again, and backward adds directly to the parameters' gradients.
// For autograd it is one node, so everything around it (losses, further models) works as usual.
//
// Known are Linear, Conv1d to Conv3d, ReLU, Flatten, MaxPool2d and MaxPool3d, on the CPU, in float,
// for inputs that need no gradient. Everything else is run by LibTorch.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include "lockstep/compute/planned_layer.h"

namespace lockstep::compute {

// While this object lives and `direct` is true, this thread computes gradients of parameters only
// by backward(), never by autograd::grad. The parameters are then left out of the graph, which
// saves a visit to each of them.
class DirectGradients {
 public:
  explicit DirectGradients(bool direct);
  ~DirectGradients();
  DirectGradients(const DirectGradients&) = delete;
  DirectGradients& operator=(const DirectGradients&) = delete;

 private:
  bool previous_;
};

class PlannedSequential {
 public:
  explicit PlannedSequential(std::shared_ptr<torch::nn::SequentialImpl> module);
  ~PlannedSequential();

  // Returns what module->forward(input) returns.
  torch::Tensor forward(const torch::Tensor& input);

 private:
  class ExecutionPlan;
  struct Backward;

  std::shared_ptr<ExecutionPlan> plan();  // for the modules as they are now

  std::shared_ptr<torch::nn::SequentialImpl> module_;
  std::mutex mutex_;                     // protects plan_
  std::shared_ptr<ExecutionPlan> plan_;  // null until it is needed
};

}  // namespace lockstep::compute
