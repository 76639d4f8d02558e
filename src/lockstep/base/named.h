// Values by name, in the order in which they were given:
//
//   Named<Model> models = {{"generator", generator}, {"discriminator", discriminator}};
//   models["generator"]
//
// There are only a few, so a search through all of them is fast enough.
#pragma once

#include <algorithm>
#include <cstddef>
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
  // Throws ConfigError if a name is there twice or is empty.
  Named(std::initializer_list<Entry> entries) { add(entries); }

  // A copy whose errors begin with `title`, for example "models".
  Named titled(std::string title) const {
    Named copy = *this;
    copy.title_ = std::move(title);
    return copy;
  }

  // Throws ConfigError, which suggests the nearest name, if there is no such name.
  const T& at(std::string_view name) const {
    const auto found = find(name);
    if (found == end()) throw ConfigError("{}no '{}'; {}", prefix(), name, suggest(name, names()));
    return found->second;
  }
  const T& operator[](std::string_view name) const { return at(name); }

  bool contains(std::string_view name) const { return find(name) != end(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : entries_) names.push_back(name);
    return names;
  }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  // Adds a value at the end. If there is a value of that name, replaces it and keeps its place.
  void set(std::string name, T value) {
    if (name.empty()) throw ConfigError("{}expected a name, got an empty one", prefix());
    const auto found = std::ranges::find(entries_, name, &Entry::first);
    if (found != entries_.end()) {
      found->second = std::move(value);
    } else {
      entries_.emplace_back(std::move(name), std::move(value));
    }
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 protected:
  Named(std::string title, std::initializer_list<Entry> entries) : title_(std::move(title)) {
    add(entries);
  }

 private:
  void add(std::initializer_list<Entry> entries) {
    for (const auto& [name, value] : entries) {
      if (contains(name)) throw ConfigError("{}the name '{}' comes twice", prefix(), name);
      set(name, value);
    }
  }
  auto find(std::string_view name) const {
    return std::ranges::find(entries_, name, &Entry::first);
  }
  std::string prefix() const { return title_.empty() ? "" : title_ + ": "; }

  std::string title_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep
