// The errors Lockstep throws. A message names the thing, the value and what was expected:
//
//   throw ConfigError("loaders/train/batch_size: expected a positive integer, got {}", value);
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  template <typename... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// What the user asked for cannot be: a bad option, an unknown name, a combination without meaning.
class ConfigError : public Error {
  using Error::Error;
};

// A data set is missing, damaged or not what it should be.
class DataError : public Error {
  using Error::Error;
};

// Ranks could not talk to each other.
class CommError : public Error {
  using Error::Error;
};

// A checkpoint is missing, damaged or belongs to another model.
class CheckpointError : public Error {
  using Error::Error;
};

// A worker process failed.
class WorkerError : public Error {
  using Error::Error;
};

}  // namespace lockstep
