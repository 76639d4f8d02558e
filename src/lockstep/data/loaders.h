// The loaders of a run by name, in the order in which an epoch goes through them:
//
//   Loaders loaders = {{"train", {train, {.batch_size = 32, .shuffle = true}}},
//                      {"valid", {valid, {.batch_size = 32}}}};
#pragma once

#include <initializer_list>

#include "lockstep/base/named.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {

class Loaders : public Named<Loader> {
 public:
  Loaders() : Named("loaders", {}) {}
  Loaders(std::initializer_list<Entry> entries) : Named("loaders", entries) {}
};

}  // namespace lockstep::data
