#include "lockstep/log/graph_proto.h"

namespace lockstep::proto {
namespace {

// TensorBoard writes these on the edges of the graph.
ProtoMessage output_shapes(const std::vector<std::vector<std::int64_t>>& shapes) {
  constexpr int kDim = 2, kSize = 1, kListShape = 7, kList = 1, kKey = 1, kValue = 2;
  ProtoMessage list;
  for (const auto& sizes : shapes) {
    ProtoMessage shape;
    for (const std::int64_t size : sizes) shape.message(kDim, ProtoMessage().integer(kSize, size));
    list.message(kListShape, shape);
  }
  ProtoMessage entry;
  return entry.bytes(kKey, "_output_shapes").message(kValue, ProtoMessage().message(kList, list));
}

}  // namespace

ProtoMessage graph(const std::vector<GraphNode>& nodes) {
  constexpr int kEventGraph = 4;
  constexpr int kNode = 1, kVersions = 4, kProducer = 1, kProducerVersion = 22;
  constexpr int kName = 1, kOp = 2, kInput = 3, kAttribute = 5;
  ProtoMessage definition;
  for (const GraphNode& node : nodes) {
    ProtoMessage message;
    message.bytes(kName, node.name).bytes(kOp, node.op);
    for (const std::string& input : node.inputs) message.bytes(kInput, input);
    if (!node.shapes.empty()) message.message(kAttribute, output_shapes(node.shapes));
    definition.message(kNode, message);
  }
  definition.message(kVersions, ProtoMessage().integer(kProducer, kProducerVersion));
  return ProtoMessage().bytes(kEventGraph, definition.encoded());
}

}  // namespace lockstep::proto
