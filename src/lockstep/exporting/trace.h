// Records the operations that a model does for an example: a straight graph of LibTorch's
// operators, without the model's own code. Only used inside of this module and by its tests: the
// header is large, because it needs LibTorch's graphs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include "lockstep/data/batch.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

struct TraceOptions {
  // The size of a batch is not part of the graph. The model is then traced with two sizes.
  bool dynamic_batch = true;
  // An operation that changes a tensor in place is recorded as one that makes a new tensor.
  bool out_of_place = false;
  std::vector<std::string> output_names = {};  // default: those of call() (example.h)
};

struct Trace {
  // Holds the model's own tensors, by their names. It has no methods.
  torch::jit::Module weights;
  // Its first input is `weights`, the others are those of the example. Its output is a tensor, or a
  // tuple of several ones. With dynamic_batch, the types of values leave sizes out that depend on
  // the size of the batch.
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// Calls the model in evaluation mode. Throws ConfigError if it cannot be traced, for example
// because other operations are done for another size of a batch.
Trace trace(const Model& model, const Batch& example, const TraceOptions& options = {});

// The weight that a value of the graph is ("layer1.0.conv1.weight"), or "" if it is none.
std::string weight_name(const torch::jit::Value& value);

// For messages: the layer to which a node belongs, as far as its weights tell: "layer 'fc'", or
// "after layer 'fc'", or "before the first layer with weights".
std::string layer_of(const torch::jit::Node& node);

}  // namespace lockstep::exporting
