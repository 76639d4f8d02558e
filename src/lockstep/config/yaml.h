// Reading and writing documents: YAML, and JSON, which is YAML as well.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/config/node.h"

namespace lockstep::config {

// What a document may cost. A config is written by hand: what goes beyond is a mistake, or meant to
// exhaust the memory.
inline constexpr std::size_t kLargestFile = 4 << 20;  // bytes
inline constexpr std::size_t kMostNodes = 100'000;    // aliases counted as what they stand for
inline constexpr std::size_t kDeepest = 64;
inline constexpr std::size_t kMostKeys = 5'000;  // of one mapping

// One document. Anchors and aliases, and "<<" to merge mappings, are resolved; a key that comes
// twice is an error. `source` names it in messages. Throws ConfigError with the line.
Node parse_yaml(std::string_view text, const std::string& source);

// A file's document, with paths set; a folder's is its config.yml. Throws ConfigError where it is
// not there, too large or not a mapping.
Node load_yaml(const std::filesystem::path& path);

// As YAML that parses to the same document.
std::string to_yaml(const Node& node);

}  // namespace lockstep::config
