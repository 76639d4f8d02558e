#include "lockstep/train/weights.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep {

Weights::Weights(Checked, std::filesystem::path path, WeightsOptions options)
    : path_(std::move(path)), options_(std::move(options)) {
  if (path_.empty()) throw ConfigError("weights: expected the path of a file, got an empty one");
  for (const auto& [from, to] : options_.rename) {
    if (from.empty() || to.empty()) {
      throw ConfigError("weights: rename: expected a name and a new one, got '{}' and '{}'", from,
                        to);
    }
    const auto stars = std::ranges::count(from, '*');
    if (std::ranges::count(to, '*') > stars) {
      throw ConfigError("weights: rename: expected at most {} * in '{}', as in '{}'", stars, to,
                        from);
    }
  }
}

Weights Weights::without(const std::vector<std::string>& names) const {
  Weights fewer = *this;
  fewer.options_.skip.insert(fewer.options_.skip.end(), names.begin(), names.end());
  return fewer;
}

std::string Weights::describe() const {
  if (path_.empty()) return "none";
  std::vector<std::string> renames;
  for (const auto& [from, to] : options_.rename) {
    renames.push_back(fmt::format("{} -> {}", from, to));
  }
  return fmt::format("a file ({})", OptionText()
                                        .with("strict", options_.strict)
                                        .with("remove_prefix", options_.remove_prefix)
                                        .with("rename", renames)
                                        .with("add_prefix", options_.add_prefix)
                                        .with("skip", options_.skip)
                                        .str());
}

}  // namespace lockstep
