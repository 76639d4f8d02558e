// A model as nodes for TensorBoard's tab "Graphs".
//
//   ls::exporting::write_graph(model, {{"features", images}}, "logs/tensorboard/_graph_");
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/log/graph_proto.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

// The operations that the model does for these inputs in evaluation mode, its inputs, weights and
// outputs. An operation belongs to the group of the layer whose weights it uses, one without
// weights to the group around the layer before it. Throws ConfigError if the model cannot be
// traced.
std::vector<proto::GraphNode> graph_nodes(const Model& model, const Batch& inputs);

// Writes them as an event file in the folder, which it creates.
void write_graph(const Model& model, const Batch& inputs, const std::filesystem::path& folder);

}  // namespace lockstep::exporting
