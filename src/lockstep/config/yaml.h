// Reads and writes documents in YAML. JSON can be read, too, because it is also YAML.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/config/node.h"

namespace lockstep::config {

// The limits of a document. A config is written by hand, so a larger one is a mistake, or an
// attempt to exhaust the memory.
inline constexpr std::size_t kLargestFile = 4 << 20;  // bytes
inline constexpr std::size_t kMostNodes = 100'000;    // an alias counts as all of its nodes
inline constexpr std::size_t kDeepest = 64;
inline constexpr std::size_t kMostKeys = 5'000;  // of one mapping

// Parses one document. Anchors, aliases and "<<", which merges mappings, are resolved. A key that
// is there twice is an error. `source` is the name of the document in messages. Throws ConfigError,
// which names the line.
Node parse_yaml(std::string_view text, const std::string& source);

// Reads the document of a file. For a folder it reads config.yml in it. The paths of the nodes are
// set. Throws ConfigError if the file does not exist, is too large or is not a mapping.
Node load_yaml(const std::filesystem::path& path);

// Writes YAML that parses to the same document.
std::string to_yaml(const Node& node);

}  // namespace lockstep::config
