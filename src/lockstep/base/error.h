// The errors Lockstep throws. A message names the thing, the value and what was expected:
//
//   throw ConfigError("loaders/train/batch_size: expected a positive integer, got {}", value);
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep {

// Messages quote keys, names and paths that come from untrusted files. The constructor makes every
// message printable, so that no message can send control sequences to a terminal.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(printable_lines(message)) {}

  template <typename... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : Error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// The user asked for something impossible: a bad option, an unknown name, options that exclude each
// other.
class ConfigError : public Error {
  using Error::Error;
};

// A data set is missing, damaged or of an unexpected kind.
class DataError : public Error {
  using Error::Error;
};

// Ranks could not communicate with each other.
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

// The text of any exception as a user should see it: printable, without the stack frames that
// LibTorch appends to its errors, and "not enough memory" rather than the name of a C++ class.
std::string message_of(const std::exception& error);

// The code with which a program should end after this exception: 2 for a ConfigError, else 1. By
// this code `lockstep launch --max-restarts` knows that another attempt would fail, too.
int exit_code_of(const std::exception& error);

}  // namespace lockstep
