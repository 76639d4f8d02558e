#include "lockstep/config/fields.h"

#include <algorithm>
#include <sstream>

namespace lockstep::config {

void Mistakes::add(const std::string& message) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    if (std::ranges::find(messages_, line) == messages_.end()) messages_.push_back(line);
  }
}

void Mistakes::raise() const {
  if (!messages_.empty()) throw LocatedError(join(messages_, "\n"));
}

void check_keys(const Node& node, const std::vector<std::string>& known, Mistakes& mistakes) {
  for (const auto& [key, value] : node.entries()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    if (known.empty()) {
      mistakes.add(
          fmt::format("{}: unknown key '{}': there are no options here", value.where(), key));
      continue;
    }
    mistakes.add(fmt::format("{}: unknown key '{}'; {}", value.where(), key, suggest(key, known)));
  }
}

}  // namespace lockstep::config
