#include "lockstep/recipe/sequential.h"

#include <string>

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

// The last layer. If it is a Linear without out_features, it gets one output per class.
config::Node last_layer(const config::Node& node, const Example& example) {
  const config::Target target =
      config::target_of(node, targets().layers.kind(), targets().layers.names());
  if (!example.classes || target.name != "Linear" || target.options.contains("out_features")) {
    return node;
  }
  config::Node options = target.options.is_map() ? target.options : config::Node::map();
  options.set("out_features", config::Node::scalar(std::to_string(*example.classes), true));
  options.set(config::kTargetKey, config::Node::text(target.name));
  options.set_place(node.place());
  options.set_paths(node.path());
  return options;
}

}  // namespace

torch::nn::Sequential make_sequential(const config::Node& layers, const Example& example) {
  if (!layers.is_list()) {
    layers.fail("expected a list of layers, got {}", layers.describe());
  }
  if (layers.items().empty()) layers.fail("expected at least one layer, got none");
  torch::nn::Sequential sequential;
  torch::Tensor passed = example.input;
  for (const config::Node& item : layers.items()) {
    const bool is_last = &item == &layers.items().back();
    const config::Node node = is_last ? last_layer(item, example) : item;
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
