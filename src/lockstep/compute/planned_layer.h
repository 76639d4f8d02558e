// A layer that computes its own gradient, so that autograd need not record it.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::compute {

// The tensors of one forward and backward of one layer, in memory that the next pass reuses.
struct LayerPass {
  torch::Tensor input;
  torch::Tensor output;
  torch::Tensor kept;  // other data that backward needs
  torch::Tensor kept_grad;
  torch::Tensor scratch;  // ReLU's gradient
  torch::Tensor input_grad;
};

class PlannedLayer {
 public:
  virtual ~PlannedLayer() = default;

  // Whether it can do what its module would do with this input.
  virtual bool accepts(const torch::Tensor& input) const = 0;

  // Computes pass.output from pass.input. Results that only backward needs may be omitted if not
  // for_backward.
  virtual void forward(LayerPass& pass, bool for_backward) const = 0;

  struct Gradient {
    const torch::Tensor& of_output;  // contiguous; must not be written to
    bool of_input = true;            // whether pass.input_grad is needed
  };
  // Adds to the gradients of its parameters.
  virtual void backward(LayerPass& pass, const Gradient& gradient) const = 0;

  virtual std::vector<torch::Tensor> parameters() const { return {}; }

  // Whether backward() reads pass.output.
  virtual bool needs_output() const { return false; }

  // Whether its output and input gradient only have other shapes, in the same memory as its input
  // and output gradient.
  virtual bool is_view() const { return false; }
};

// Layers with the same computation as these modules in sequence; some modules are combined into one
// layer. Empty if one of the modules is not known.
std::vector<std::unique_ptr<PlannedLayer>> plan_layers(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules);

}  // namespace lockstep::compute
