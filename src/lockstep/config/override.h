// "optimizer/lr=0.01": a value of a document changed from outside.
#pragma once

#include <string_view>

#include "lockstep/config/node.h"

namespace lockstep::config {

// The source that nodes from the command line name as their place.
inline constexpr const char* kCommandLine = "command line";

// Whether an argument looks like an override: a path, "=", a value.
bool is_override(std::string_view argument);

// Sets what the path leads to, "a/b/c" or "a.b.c", and makes mappings on the way where there are
// none; a number is a place in a list. The value is YAML, so that [1, 2] and {a: 1} can be given,
// or text that begins with a placeholder, {feature}_{checkpoint:04d}.h5. Throws ConfigError naming
// the argument where it is no path and value, or leads through a scalar.
void apply_override(Node& document, std::string_view argument);

// What came from the command line: "a/b" set to plain text, as an override with its meaning left to
// who reads it.
void set_at(Node& document, std::string_view path, Node value);

}  // namespace lockstep::config
