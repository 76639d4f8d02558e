// Checks of options, with messages like "optimizer Adam: lr: expected a number >= 0, got -1".
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

// Its argument is the owner of the options that are checked, "optimizer Adam".
class Check {
 public:
  explicit Check(std::string owner) : owner_(std::move(owner)) {}

  void not_negative(std::string_view field, double value) const {
    require(value >= 0.0 && std::isfinite(value), field, "a number >= 0", value);
  }
  void positive(std::string_view field, double value) const {
    require(value > 0.0 && std::isfinite(value), field, "a number > 0", value);
  }
  // 1 is not allowed: a value that decays by the factor 1 never decays.
  void decay(std::string_view field, double value) const {
    require(value >= 0.0 && value < 1.0, field, "a number in [0, 1)", value);
  }
  void fraction(std::string_view field, double value) const {
    require(value >= 0.0 && value <= 1.0, field, "a number in [0, 1]", value);
  }

  // A size or a number of things.
  void count(std::string_view field, std::int64_t value) const {
    require(value > 0, field, "a positive integer", value);
  }

  template <typename T>
  void require(bool holds, std::string_view field, std::string_view expected,
               const T& value) const {
    if (!holds) throw ConfigError("{}: {}: expected {}, got {}", owner_, field, expected, value);
  }

 private:
  std::string owner_;
};

}  // namespace lockstep
