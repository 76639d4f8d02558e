#include "lockstep/recipe/scaling.h"

#include "lockstep/config/fields.h"

namespace lockstep::config {

data::ChannelScaling Value<data::ChannelScaling>::read(const Node& node) {
  using C = data::ChannelScaling;
  static const std::vector<Field<C>> fields = {required("kind", &C::kind, "how values were scaled"),
                                               {"shift", &C::shift, "one per channel"},
                                               {"scale", &C::scale, "one per channel"}};
  const C scaling = read_fields(node, fields);
  try {
    scaling.check();
  } catch (const ConfigError& error) {
    node.fail("{}", error.what());
  }
  return scaling;
}

data::Scaling Value<data::Scaling>::read(const Node& node) {
  using S = data::Scaling;
  static const std::vector<Field<S>> fields = {{"features", &S::features, "of the features"},
                                               {"targets", &S::targets, "of the targets"}};
  return read_fields(node, fields);
}

}  // namespace lockstep::config

namespace lockstep::recipe {
namespace {

using config::Node;

Node to_node(const std::vector<double>& numbers) {
  Node list = Node::list();
  for (const double number : numbers) {
    list.items().push_back(Node::scalar(config::show_double(number), true));
  }
  return list;
}

Node to_node(const data::ChannelScaling& scaling) {
  return Node::map({{"kind", Node::scalar(data::name_of(scaling.kind), true)},
                    {"shift", to_node(scaling.shift)},
                    {"scale", to_node(scaling.scale)}});
}

// The data set of a loader that has `normalize`, also if it is inside of another one, such as a
// Subset; or nullptr.
Node* normalized_dataset(Node* part, const std::string& loader) {
  Node* node = part == nullptr ? nullptr : part->find("loaders");
  if (node != nullptr) node = node->find(loader);
  while (node != nullptr && !node->contains("normalize")) node = node->find("dataset");
  return node;
}

}  // namespace

void record_scaling(const Recipe& recipe, Node& document) {
  Node* const stages = document.find("stages");
  for (const Stage& stage : recipe.stages) {
    // A single stage has no name in the recipe.
    Node* own = nullptr;
    if (stages != nullptr && !stages->entries().empty()) {
      own = stage.name.empty() ? &stages->entries().front().second : stages->find(stage.name);
    }
    for (const auto& [name, loader] : stage.options.loaders) {
      const data::Scaling scaling = data::scaling_of(*loader.dataset());
      if (scaling.is_none()) continue;
      Node* dataset = normalized_dataset(own, name);
      if (dataset == nullptr) dataset = normalized_dataset(&document, name);
      if (dataset == nullptr || dataset->contains("scaling")) continue;
      dataset->set("scaling", Node::map({{"features", to_node(scaling.features)},
                                         {"targets", to_node(scaling.targets)}}));
    }
  }
  document.set_paths();
}

OutputScaling::OutputScaling(const data::Loader& loader)
    : scaling_(data::scaling_of(*loader.dataset()).targets) {
  if (scaling_.kind == data::Normalization::kNone) return;
  const auto readable = loader.dataset()->examples(1);
  if (readable.empty()) return;
  const Batch sample = loader.dataset()->sample(readable.front());
  if (const torch::Tensor* const targets = sample.find("targets")) values_ = targets->numel();
}

void OutputScaling::undo(Batch& outputs) const {
  if (values_ == 0) return;
  Batch scaled_back;
  for (const auto& [key, rows] : outputs) {
    if (rows.dim() < 2 || rows.size(0) == 0 || rows.numel() / rows.size(0) != values_) continue;
    scaled_back.set(key, scaling_.undo(rows));
  }
  outputs.update(std::move(scaled_back));
}

}  // namespace lockstep::recipe
