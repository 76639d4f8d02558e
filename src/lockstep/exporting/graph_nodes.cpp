#include "lockstep/exporting/graph_nodes.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lockstep/exporting/trace.h"
#include "lockstep/log/event_file.h"

namespace lockstep::exporting {
namespace {

namespace jit = torch::jit;
using proto::GraphNode;

std::vector<std::int64_t> shape_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  const auto sizes =
      type ? type->sizes().sizes() : c10::optional<std::vector<c10::optional<std::int64_t>>>();
  std::vector<std::int64_t> shape;
  if (!sizes) return shape;
  for (const auto& size : *sizes) shape.push_back(size.value_or(-1));
  return shape;
}

// "layer1.0.conv1.weight" is in the group "layer1/0/conv1".
std::string as_path(std::string name) {
  std::ranges::replace(name, '.', '/');
  return name;
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

class GraphWriter {
 public:
  explicit GraphWriter(const Trace& traced) : traced_(traced) {}

  std::vector<GraphNode> run() {
    const auto inputs = traced_.graph->inputs();
    for (std::size_t i = 0; i < traced_.inputs.size(); ++i) {
      const jit::Value& value = *inputs[i + 1];  // the first one is the module
      add({.name = "inputs/" + traced_.inputs[i], .op = "Input", .shapes = {shape_of(value)}},
          value);
    }
    for (const jit::Node* const node : traced_.graph->nodes()) visit(*node);
    const auto results = sources(*traced_.graph->outputs().front());
    for (std::size_t i = 0; i < results.size() && i < traced_.outputs.size(); ++i) {
      nodes_.push_back(
          {.name = "outputs/" + traced_.outputs[i], .op = "Output", .inputs = {results[i]}});
    }
    return std::move(nodes_);
  }

 private:
  void add(GraphNode node, const jit::Value& value) {
    names_[&value] = {node.name};
    nodes_.push_back(std::move(node));
  }

  // The nodes whose outputs a value is made of: several for a list. Constants have none.
  std::vector<std::string> sources(const jit::Value& value) const {
    const auto found = names_.find(&value);
    return found == names_.end() ? std::vector<std::string>() : found->second;
  }

  std::string unique(const std::string& name) {
    const int count = used_[name]++;
    return count == 0 ? name : fmt::format("{}_{}", name, count);
  }

  void visit(const jit::Node& node) {
    if (node.kind() == c10::prim::GetAttr) return visit_weight(*node.output());
    std::vector<std::string> inputs;
    std::string layer;
    for (const jit::Value* const input : node.inputs()) {
      const auto found = sources(*input);
      inputs.insert(inputs.end(), found.begin(), found.end());
      const std::string weight = weight_name(*input);
      if (!weight.empty()) layer = parent_of(as_path(weight));
    }
    const std::string kind = node.kind().toQualString();
    // Lists, tuples and their parts are only edges of the graph.
    if (!kind.starts_with("aten::") || inputs.empty()) {
      for (const jit::Value* const output : node.outputs()) names_[output] = inputs;
      return;
    }
    const bool has_weights = !layer.empty();
    if (has_weights) group_ = parent_of(layer);
    const std::string group = has_weights ? layer : group_;
    const std::string short_kind = kind.substr(kind.find("::") + 2);
    GraphNode made{.name = unique(group.empty() ? short_kind : group + "/" + short_kind),
                   .op = kind,
                   .inputs = inputs};
    for (const jit::Value* const output : node.outputs()) {
      made.shapes.push_back(shape_of(*output));
      names_[output] = {made.name};
    }
    nodes_.push_back(std::move(made));
  }

  void visit_weight(const jit::Value& value) {
    if (!value.type()->isSubtypeOf(*c10::TensorType::get()) || !value.hasUses()) return;
    add({.name = as_path(weight_name(value)), .op = "Weight"}, value);
  }

  const Trace& traced_;
  std::vector<GraphNode> nodes_;
  std::unordered_map<const jit::Value*, std::vector<std::string>> names_;
  std::map<std::string, int> used_;
  std::string group_;  // around the last layer with weights
};

}  // namespace

std::vector<GraphNode> graph_nodes(const Model& model, const Batch& inputs) {
  return GraphWriter(trace(model, inputs, {.dynamic_batch = false})).run();
}

void write_graph(const Model& model, const Batch& inputs, const std::filesystem::path& folder) {
  const auto nodes = graph_nodes(model, inputs);
  EventFile file(folder);
  file.write(0, proto::graph(nodes));
  file.sync();
}

}  // namespace lockstep::exporting
