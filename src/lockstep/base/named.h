// Values by name, in the order in which they were given.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {

template <typename T>
class Named {
 public:
  using Entry = std::pair<std::string, T>;

  Named() = default;
  Named(std::initializer_list<Entry> entries) : entries_(entries) {}

  // Throws ConfigError, which suggests the nearest name, if there is none of this name.
  const T& at(std::string_view name) const {
    std::vector<std::string> names;
    for (const auto& [known, value] : entries_) {
      if (known == name) return value;
      names.push_back(known);
    }
    throw ConfigError("there is no '{}'; {}", name, suggest(name, names));
  }

  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep
