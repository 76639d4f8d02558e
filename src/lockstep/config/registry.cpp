#include "lockstep/config/registry.h"

#include <algorithm>
#include <optional>

namespace lockstep::config {
namespace {

// The messages of LibTorch end with a backtrace.
std::string without_backtrace(const std::string& message) {
  return message.substr(
      0, std::min(message.find("\nException raised from"), message.find("\nframe #")));
}

// The part of a message that is about an option: for lr, "expected …" of "Adam: lr: expected …".
// Nothing if the message does not name the option.
std::optional<std::string> said_of(const std::string& option, const std::string& message) {
  const std::size_t at = message.find(option + ": ");
  if (at == std::string::npos || (at > 0 && message[at - 1] != ' ')) return std::nullopt;
  return message.substr(at + option.size() + 2);
}

// "a layer", "an engine"
std::string with_article(const std::string& kind) {
  return (std::string_view("aeiou").find(kind[0]) != std::string_view::npos ? "an " : "a ") + kind;
}

}  // namespace

Target target_of(const Node& node, const std::string& kind, const std::vector<std::string>& known) {
  Target target;
  const Node* named = &node;
  if (node.is_scalar()) {
    target.name = node.text();
    target.options = Node::map();
  } else if (const Node* const name = node.find(kTargetKey)) {
    named = name;
    target.name = read_text(*name);
    target.options = node;
    target.options.erase(kTargetKey);
  } else if (node.is_map() && node.entries().size() == 1) {
    const auto& [name_alone, options] = node.entries().front();
    if (!options.is_map() && !options.is_null()) {
      node.fail("expected {}: the name of {}, got the key '{}'", kTargetKey, with_article(kind),
                name_alone);
    }
    named = &options;
    target.name = name_alone;
    target.options = options.is_null() ? Node::map() : options;
  } else {
    node.fail("expected {}: its name, or a mapping with {}, got {}; known: {}", with_article(kind),
              kTargetKey, node.describe(), list_some(known));
  }
  if (std::ranges::find(known, target.name) == known.end()) {
    named->fail(
        "unknown {} '{}'; {}{}", kind, target.name, suggest(target.name, known),
        known.size() > kFewNames ? fmt::format(" (lockstep targets {} lists all)", kind) : "");
  }
  if (node.is_scalar()) {
    target.options.set_place(node.place());
    target.options.set_paths(node.path());
  }
  return target;
}

void fail_making(const Node& node, const Node& options, const std::string& message) {
  const std::string said = without_backtrace(message);
  for (const auto& [key, value] : options.entries()) {
    if (const auto of_it = said_of(key, said)) value.fail("{}", *of_it);
  }
  node.fail("{}", said);
}

}  // namespace lockstep::config
