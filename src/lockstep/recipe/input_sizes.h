// Sizes of layers and models that a config may leave out, because the data has them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/error.h"

namespace lockstep::recipe {

inline void require_positive(const std::vector<std::int64_t>& values, const char* name) {
  for (const std::int64_t value : values) {
    if (value <= 0) throw ConfigError("{}: expected a positive integer, got {}", name, value);
  }
}

// Throws ConfigError if there is no data to take the size `name` from.
inline void require_input(const torch::Tensor& input, const char* name) {
  if (!input.defined()) {
    throw ConfigError("{}: expected a number, got none, and there is no data to take it from",
                      name);
  }
}

// `given`, or the size of the input's dimension if the config leaves it out.
inline std::int64_t size_or(const std::optional<std::int64_t>& given, const torch::Tensor& input,
                            std::int64_t dimension, const char* name) {
  if (given) {
    require_positive({*given}, name);
    return *given;
  }
  require_input(input, name);
  const std::int64_t at = dimension < 0 ? input.dim() + dimension : dimension;
  if (at < 0 || at >= input.dim()) {
    throw ConfigError("{}: cannot be taken from an input of {} dimensions", name, input.dim());
  }
  return input.size(at);
}

}  // namespace lockstep::recipe
