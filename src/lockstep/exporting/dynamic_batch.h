// The size of the batch in a traced graph. LibTorch records sizes as constants. Here the graphs of
// two sizes are compared: a constant that differs between them is replaced by a computation from
// the size of the input.
#pragma once

#include <cstdint>
#include <memory>

#include <torch/csrc/jit/ir/ir.h>

namespace lockstep::exporting {

struct TracedGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  std::int64_t batch_size = 0;
};

// Changes `graph.graph`. A number n that is a * (size of the batch) + b for both sizes is computed
// from the first dimension of input `batched_input`. Sizes in the types of values that differ are
// left out: those that are the size of the batch have one symbol, all others a symbol each. Throws
// ConfigError if the graphs differ in anything else.
void make_batch_dynamic(const TracedGraph& graph, const TracedGraph& other,
                        std::size_t batched_input);

}  // namespace lockstep::exporting
