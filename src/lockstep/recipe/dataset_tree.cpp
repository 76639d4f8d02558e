#include "lockstep/recipe/dataset_tree.h"

#include "lockstep/config/registry.h"
#include "lockstep/config/yaml.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {
namespace {

using config::Node;

// The registry makes data sets that are inside of others, so they cannot be given a list to write
// to.
thread_local MadeDatasets* innermost = nullptr;

}  // namespace

DatasetNode dataset_node(Node& node) {
  if (node.is_scalar()) return {.node = &node, .target = node.text()};
  if (const Node* const target = node.find(config::kTargetKey)) {
    return {.node = &node, .target = target->text(), .options = &node};
  }
  if (node.entries().size() != 1) return {.node = &node};
  auto& [target, options] = node.entries().front();
  return {.node = &node, .target = target, .options = options.is_map() ? &options : nullptr};
}

std::vector<DatasetNode> parts_of(const DatasetNode& dataset) {
  if (Node* const inner = dataset.find("dataset")) return {dataset_node(*inner)};
  std::vector<DatasetNode> parts;
  if (Node* const several = dataset.find("datasets")) {
    for (Node& part : several->items()) parts.push_back(dataset_node(part));
  }
  return parts;
}

std::vector<DatasetNode> sources_of(Node& dataset) {
  const DatasetNode here = dataset_node(dataset);
  const std::vector<DatasetNode> parts = parts_of(here);
  if (parts.empty()) return {here};
  std::vector<DatasetNode> sources;
  for (const DatasetNode& part : parts) {
    const auto found = sources_of(*part.node);
    sources.insert(sources.end(), found.begin(), found.end());
  }
  return sources;
}

MadeDatasets::MadeDatasets() : outer_(innermost) {
  innermost = this;
}

// Takes itself out of the list, wherever it is in it: the inner ones may live longer.
MadeDatasets::~MadeDatasets() {
  MadeDatasets** place = &innermost;
  while (*place != nullptr && *place != this) place = &(*place)->outer_;
  if (*place == this) *place = outer_;
}

data::DatasetPtr MadeDatasets::find(const Node& node) const {
  const auto found = by_text_.find(config::to_yaml(node));
  return found == by_text_.end() ? nullptr : found->second;
}

data::DatasetPtr make_dataset(const Node& node) {
  if (innermost == nullptr) return targets().datasets.make(node);
  const std::string text = config::to_yaml(node);
  const auto found = innermost->by_text_.find(text);
  if (found != innermost->by_text_.end()) return found->second;
  const data::DatasetPtr made = targets().datasets.make(node);
  innermost->by_text_.emplace(text, made);
  return made;
}

}  // namespace lockstep::recipe
