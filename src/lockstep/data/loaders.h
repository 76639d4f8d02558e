// The loaders of a run by name, in the order in which an epoch goes through them:
//
//   Loaders loaders = {{"train", {train, {.batch_size = 32, .shuffle = true}}},
//                      {"valid", {valid, {.batch_size = 32}}}};
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep::data {

class Loaders {
 public:
  using Entry = std::pair<std::string, Loader>;

  Loaders() = default;
  // Throws ConfigError if a name is there twice or is empty.
  Loaders(std::initializer_list<Entry> entries);

  // Throws ConfigError, which suggests the nearest name, if there is no such loader.
  const Loader& at(std::string_view name) const;
  bool contains(std::string_view name) const;
  std::vector<std::string> names() const;
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  // Adds a loader at the end. If there is a loader of that name, replaces it and keeps its place.
  void set(std::string name, Loader loader);

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep::data
