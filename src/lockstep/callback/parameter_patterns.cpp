#include "lockstep/callback/parameter_patterns.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

void check_parameter_patterns(const std::vector<std::string>& patterns, const RunState& run,
                              std::string_view asked_by) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : run.model.parameters()) names.push_back(name);
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const std::string& name) { return matches_pattern(pattern, name); };
    if (std::ranges::any_of(names, fits)) continue;
    throw ConfigError("{}: names: '{}' matches no parameter; {}", asked_by, pattern,
                      suggest(pattern, names));
  }
}

}  // namespace lockstep
