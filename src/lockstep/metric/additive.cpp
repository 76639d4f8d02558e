#include "lockstep/metric/additive.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::metric {

Additive::Additive(AdditiveOptions options) : options_(std::move(options)) {
  if (options_.name.empty())
    throw ConfigError("name of an additive metric: expected a name, got ''");
}

std::vector<std::string> Additive::names() const {
  return {options_.name, options_.name + "/std"};
}

Metrics Additive::compute() const {
  return {{options_.name, moments_.mean()}, {options_.name + "/std", moments_.std()}};
}

StateDict Additive::state() const {
  return moments_.state();
}

void Additive::load_state(const StateDict& state) {
  moments_ = Moments::from_state(state);
}

void Additive::merge(const StateDict& other) {
  moments_.merge(Moments::from_state(other));
}

}  // namespace lockstep::metric
