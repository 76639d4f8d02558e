// Names the sample in an error that happens while the sample is read:
//
//   DataError: sample 17 (cats/7.jpg): the file ends inside the image
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {

class Dataset;

// Call it inside a catch block. Throws the current exception again, with Dataset::name_of in front
// of its message unless the message has it. DataError, ConfigError and Error keep their class.
// Other errors of Lockstep are not changed, and any other std::exception becomes a DataError.
[[noreturn]] void rethrow_with_name(const Dataset& dataset, std::int64_t index);

// The same with another name.
[[noreturn]] void rethrow_with_name(const std::string& name);

// The result of read(), whose errors have name() in front. It is called only if there is one.
template <typename Name, typename Read>
auto naming(Name&& name, Read&& read) {
  try {
    return std::forward<Read>(read)();
  } catch (...) {
    rethrow_with_name(std::forward<Name>(name)());
  }
}

// The result of read(), whose errors name the sample.
template <typename Read>
auto naming_sample(const Dataset& dataset, std::int64_t index, Read&& read) {
  try {
    return std::forward<Read>(read)();
  } catch (...) {
    rethrow_with_name(dataset, index);
  }
}

// The result of change(), whose DataErrors name the key of the tensor.
template <typename Change>
auto naming_key(const std::string& key, Change&& change) {
  try {
    return std::forward<Change>(change)();
  } catch (const DataError& error) {
    throw DataError("'{}': {}", key, error.what());
  }
}

}  // namespace lockstep::data
