// A model's graph for TensorBoard's tab "Graphs", as a content for EventFile::write. Field numbers
// are those of TensorFlow's graph.proto, node_def.proto and attr_value.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/log/proto.h"

namespace lockstep::proto {

struct GraphNode {
  std::string name;                                    // unique; parts between slashes are groups
  std::string op;                                      // "aten::conv2d"
  std::vector<std::string> inputs = {};                // names of nodes
  std::vector<std::vector<std::int64_t>> shapes = {};  // of its outputs; -1 is any size
};

ProtoMessage graph(const std::vector<GraphNode>& nodes);

}  // namespace lockstep::proto
