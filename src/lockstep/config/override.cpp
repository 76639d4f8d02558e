#include "lockstep/config/override.h"

#include <string>
#include <vector>

#include "lockstep/config/value.h"
#include "lockstep/config/yaml.h"

namespace lockstep::config {
namespace {

std::vector<std::string> split(std::string_view path) {
  // A key may contain dots ("conv.*"). The path is then written with slashes.
  const char separator = path.find('/') != std::string_view::npos ? '/' : '.';
  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(separator, begin), path.size());
    keys.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

void set_places(Node& node) {
  node.set_place({.source = kCommandLine});
  for (Node& item : node.items()) set_places(item);
  for (auto& [key, value] : node.entries()) set_places(value);
}

Node& item_of(Node& list, const std::string& key, std::string_view path) {
  const auto index = parse_int(key);
  if (!index || *index < 0 || *index >= static_cast<std::int64_t>(list.items().size())) {
    throw ConfigError("{}: {}: expected a place in a list of {}, 0 to {}, got '{}'", kCommandLine,
                      path, list.items().size(), static_cast<std::int64_t>(list.items().size()) - 1,
                      key);
  }
  return list.items()[static_cast<std::size_t>(*index)];
}

// Removes a type that Catalyst writes into values, as in "3:int". Here the field has the type.
std::string_view without_type(std::string_view value) {
  if (value == "none:str" || value == "None:str") return "null";
  for (const std::string_view suffix : {":int", ":float", ":str", ":bool"}) {
    if (value.ends_with(suffix)) return value.substr(0, value.size() - suffix.size());
  }
  return value;
}

// Whether this is not a YAML mapping but text, such as a path with placeholders,
// "{feature}_{checkpoint:04d}.h5". Such text goes on after the brace that closes the first one.
bool is_pattern(std::string_view text) {
  if (!text.starts_with('{')) return false;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) {
      return text.find_first_not_of(" \t", i + 1) != std::string_view::npos;
    }
  }
  return false;  // never closed
}

}  // namespace

bool is_override(std::string_view argument) {
  const std::size_t equals = argument.find('=');
  return equals != std::string_view::npos && equals > 0 && !argument.starts_with('-');
}

void set_at(Node& document, std::string_view path, Node value) {
  Node* node = &document;
  for (const std::string& key : split(path)) {
    if (key.empty()) throw ConfigError("{}: '{}': a key is empty", kCommandLine, path);
    if (node->is_list()) {
      node = &item_of(*node, key, path);
      continue;
    }
    if (node->is_null()) *node = Node::map();
    if (!node->is_map()) {
      throw ConfigError("{}: {}: leads through {}, which has no '{}' in it", kCommandLine, path,
                        node->describe(), key);
    }
    Node* const next = node->find(key);
    node = next != nullptr ? next : &node->set(key, Node());
  }
  set_places(value);
  *node = std::move(value);
  document.set_paths();
}

void apply_override(Node& document, std::string_view argument) {
  if (!is_override(argument)) {
    throw ConfigError("{}: '{}': expected path=value, such as optimizer/lr=0.01", kCommandLine,
                      argument);
  }
  const std::size_t equals = argument.find('=');
  const std::string_view path = argument.substr(0, equals);
  const std::string_view text = without_type(argument.substr(equals + 1));
  Node value;
  try {
    value =
        is_pattern(text) ? Node::scalar(std::string(text), true) : parse_yaml(text, kCommandLine);
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}: cannot read '{}': {}", kCommandLine, path, text, error.what());
  }
  set_at(document, path, std::move(value));
}

}  // namespace lockstep::config
