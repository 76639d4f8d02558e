// Changes values of a document from the command line: "optimizer/lr=0.01".
#pragma once

#include <string_view>

#include "lockstep/config/node.h"

namespace lockstep::config {

// The source of nodes that come from the command line.
inline constexpr const char* kCommandLine = "command line";

// Whether an argument looks like an override: a path, "=", a value.
bool is_override(std::string_view argument);

// Sets the value at a path, "a/b/c" or "a.b.c". Missing mappings on the path are made. In a list, a
// key is the index of an item. The value is YAML, so that [1, 2] and {a: 1} can be given, or text
// that begins with a placeholder, {feature}_{checkpoint:04d}.h5. Throws ConfigError, which names
// the argument, if it is not a path and a value, or if the path leads through a scalar.
void apply_override(Node& document, std::string_view argument);

// Sets the value at a path, as apply_override() does, to a node. The node gets the command line as
// its source.
void set_at(Node& document, std::string_view path, Node value);

}  // namespace lockstep::config
