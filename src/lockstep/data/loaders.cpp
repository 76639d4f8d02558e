#include "lockstep/data/loaders.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

Loaders::Loaders(std::initializer_list<Entry> entries) {
  for (const auto& [name, loader] : entries) {
    if (contains(name)) throw ConfigError("loaders: the name '{}' comes twice", name);
    set(name, loader);
  }
}

const Loader& Loaders::at(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  if (found == entries_.end()) {
    throw ConfigError("loaders: no '{}'; {}", name, suggest(name, names()));
  }
  return found->second;
}

bool Loaders::contains(std::string_view name) const {
  return std::ranges::find(entries_, name, &Entry::first) != entries_.end();
}

std::vector<std::string> Loaders::names() const {
  std::vector<std::string> names;
  for (const auto& [name, loader] : entries_) names.push_back(name);
  return names;
}

void Loaders::set(std::string name, Loader loader) {
  if (name.empty()) throw ConfigError("loaders: expected a name, got an empty one");
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  if (found != entries_.end()) {
    found->second = std::move(loader);
  } else {
    entries_.emplace_back(std::move(name), std::move(loader));
  }
}

}  // namespace lockstep::data
