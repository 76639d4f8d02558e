#include "lockstep/config/fields.h"

#include <algorithm>

namespace lockstep::config {

void Mistakes::raise() const {
  if (!messages_.empty()) throw LocatedError(join(messages_, "\n"));
}

void check_keys(const Node& node, const std::vector<std::string>& known, Mistakes& mistakes) {
  for (const auto& [key, value] : node.entries()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    if (known.empty()) {
      mistakes.add(fmt::format("{}: unknown key '{}': there are no options here", value.where(), key));
      continue;
    }
    mistakes.add(fmt::format("{}: unknown key '{}'; {}", value.where(), key, suggest(key, known)));
  }
}

}  // namespace lockstep::config
