#include "lockstep/command/document.h"

#include <filesystem>
#include <utility>

#include "lockstep/config/override.h"
#include "lockstep/config/value.h"
#include "lockstep/config/yaml.h"
#include "lockstep/recipe/shorthand.h"

namespace lockstep::command {

using config::Node;

Node flag(bool value) {
  return Node::scalar(value ? "true" : "false", true);
}

Node number(std::int64_t value) {
  return Node::scalar(std::to_string(value), true);
}

void merge_configs(const std::vector<std::string>& files, Node& document) {
  for (const std::string& file : files) {
    Node loaded = config::load_yaml(file);
    recipe::spell_out(loaded);
    recipe::lift_args(loaded);
    config::merge(document, loaded);
  }
  document.set_paths();
}

void apply_overrides(const std::vector<std::string>& overrides, Node& document) {
  for (const std::string& argument : overrides) {
    config::apply_override(document, argument);
    recipe::spell_out(document);
    recipe::lift_args(document);
  }
}

void apply_workers(const WorkerFlags& flags, Node& document) {
  const auto set = [&](const char* key, Node value) {
    config::set_at(document, key, std::move(value));
  };
  if (const Node* const engine = document.find("engine"); engine != nullptr && !engine->is_null()) {
    // The config has an engine, which decides the numbers of workers and shards.
    if (flags.workers) set("engine/workers", number(*flags.workers));
    if (flags.shards) set("engine/shards", number(*flags.shards));
    if (flags.distributed) set("ddp", flag(true));
  } else {
    if (flags.workers) set("workers", number(*flags.workers));
    if (flags.shards) set("shards", number(*flags.shards));
    if (flags.distributed || flags.workers || flags.shards) set("ddp", flag(true));
  }
  if (flags.max_restarts) set("max_restarts", number(*flags.max_restarts));
}

void apply_precision(const std::string& precision, Node& document) {
  for (const char* const key : {"fp16", "amp"}) document.erase(key);
  config::set_at(document, "precision", Node::text(precision));
}

void add_plugins(const std::vector<std::string>& paths, Node& document) {
  if (paths.empty()) return;
  Node& plugins = document.contains("plugins") ? *document.find("plugins")
                                               : document.set("plugins", Node::list());
  if (plugins.is_null()) plugins = Node::list();
  if (plugins.is_scalar()) plugins = Node::list({plugins});
  for (const std::string& path : paths) {
    plugins.items().push_back(Node::text(std::filesystem::absolute(path).string()));
  }
  document.set_paths();
}

void take_place(const std::optional<process::LaunchedPlace>& place, Node& document) {
  if (!place || place->topology.world_size == 1) return;
  if (const Node* const engine = document.find("engine"); engine == nullptr || engine->is_null()) {
    config::set_at(document, "ddp", flag(true));
  }
  const Node* const workers = document.find("workers");
  if (workers != nullptr && !workers->is_null() && place->local_size_known &&
      config::Value<int>::read(*workers) != place->topology.local_size) {
    workers->fail("{}, but the launcher started {} processes on this host", workers->text(),
                  place->topology.local_size);
  }
}

}  // namespace lockstep::command
