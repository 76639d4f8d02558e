#include "lockstep/recipe/sequential.h"

#include <torch/nn/modules/container/any.h>
#include <torch/utils.h>

#include "lockstep/config/fields.h"
#include "lockstep/data/describe.h"

namespace lockstep::recipe {
namespace {

// The output of the layer for the input. It runs in evaluation mode, because a batch norm cannot
// train on one sample.
torch::Tensor forward(torch::nn::AnyModule& layer, const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  const auto module = layer.ptr();
  module->eval();
  torch::Tensor output = layer.forward(input);
  module->train();
  return output;
}

}  // namespace

torch::nn::Sequential make_sequential(const config::Node& layers, const torch::Tensor& example) {
  if (!layers.is_list()) {
    layers.fail("expected a list of layers, got {}", layers.describe());
  }
  if (layers.items().empty()) layers.fail("expected at least one layer, got none");
  torch::nn::Sequential sequential;
  torch::Tensor passed = example;
  for (const config::Node& node : layers.items()) {
    torch::nn::AnyModule layer = targets().layers.make(node, passed);
    if (passed.defined()) {
      try {
        passed = forward(layer, passed);
      } catch (const std::exception& error) {
        config::fail_making(
            node, {},
            fmt::format("does not fit an input of {}: {}", data::describe(passed), error.what()));
      }
    }
    sequential->push_back(std::move(layer));
  }
  return sequential;
}

}  // namespace lockstep::recipe
