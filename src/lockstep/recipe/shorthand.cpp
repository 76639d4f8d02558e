#include "lockstep/recipe/shorthand.h"

#include <set>
#include <string>

#include "lockstep/config/registry.h"

namespace lockstep::recipe {
namespace {

using config::kTargetKey;
using config::Node;

const std::set<std::string> kTargets = {"model",   "criterion",      "optimizer", "scheduler",
                                        "engine",  "runner",         "dataset",   "sampler",
                                        "collate", "batch_transform"};

// Each value of these mappings stands for one target.
const std::set<std::string> kNamedTargets = {"models", "criterions", "optimizers", "schedulers"};

Node target_node(const Node& written, const std::string& name) {
  Node target = Node::map();
  target.set_place(written.place());
  Node text = Node::scalar(name, true);
  text.set_place(written.place());
  target.set(kTargetKey, std::move(text));
  return target;
}

void spell_out_target(Node& node) {
  if (node.is_scalar()) {
    node = target_node(node, node.text());
    return;
  }
  if (!node.is_map() || node.entries().size() != 1 || node.contains(kTargetKey)) return;
  const auto [name, options] = node.entries().front();
  if (!options.is_map() && !options.is_null()) return;
  Node target = target_node(node, name);
  for (const auto& [key, value] : options.entries()) target.set(key, value);
  node = std::move(target);
}

void walk(Node& node) {
  for (auto& [key, value] : node.entries()) {
    if (key == "losses") continue;  // their criterion is the name of one
    if (kTargets.contains(key)) spell_out_target(value);
    if (kNamedTargets.contains(key)) {
      for (auto& [name, target] : value.entries()) spell_out_target(target);
    }
    walk(value);
  }
  for (Node& item : node.items()) walk(item);
}

}  // namespace

void spell_out(Node& document) {
  walk(document);
  document.set_paths();
}

void lift_args(Node& document) {
  const Node* const found = document.find("args");
  if (found == nullptr) return;
  const Node args = *found;
  if (!args.is_map() && !args.is_null()) args.fail("expected a mapping, got {}", args.describe());
  document.erase("args");
  for (const auto& [key, value] : args.entries()) {
    if (document.contains(key)) value.fail("'{}' is given twice, also outside of args", key);
    document.set(key, value);
  }
}

}  // namespace lockstep::recipe
