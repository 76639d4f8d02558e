// A layer that knows its own gradient, so that autograd need not record it.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::compute {

// One forward and backward of one layer: what it computes, in memory that the next one reuses.
struct LayerPass {
  torch::Tensor input;
  torch::Tensor output;
  torch::Tensor kept;  // what else backward needs
  torch::Tensor kept_grad;
  torch::Tensor scratch;  // ReLU's gradient
  torch::Tensor input_grad;
};

class PlannedLayer {
 public:
  virtual ~PlannedLayer() = default;

  // Whether it can do what its module would do with this input.
  virtual bool accepts(const torch::Tensor& input) const = 0;

  // From pass.input to pass.output. What only backward needs may be left out.
  virtual void forward(LayerPass& pass, bool for_backward) const = 0;

  struct Gradient {
    const torch::Tensor& of_output;  // contiguous; not to be written to
    bool of_input = true;            // pass.input_grad is wanted
  };
  // Adds to the gradients of its parameters.
  virtual void backward(LayerPass& pass, const Gradient& gradient) const = 0;

  virtual std::vector<torch::Tensor> parameters() const { return {}; }

  // backward() looks at pass.output.
  virtual bool needs_output() const { return false; }

  // Its output and gradient are other shapes of its input's and output's memory.
  virtual bool is_view() const { return false; }
};

// The same computation as these modules in turn, some of them as one layer; empty where one of them
// is not known.
std::vector<std::unique_ptr<PlannedLayer>> plan_layers(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules);

}  // namespace lockstep::compute
