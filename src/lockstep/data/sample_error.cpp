#include "lockstep/data/sample_error.h"

#include <cctype>
#include <exception>
#include <string>
#include <typeinfo>

#include "lockstep/data/dataset.h"

namespace lockstep::data {
namespace {

std::string name_or_number(const Dataset& dataset, std::int64_t index) {
  try {
    return printable_lines(dataset.name_of(index));
  } catch (const std::exception&) {
    // The error that is being named is more important.
    return fmt::format("sample {}", index);
  }
}

// "sample 40 is empty" has the name "sample 40", but not "sample 4".
bool has_name(const std::string& message, const std::string& name) {
  for (std::size_t at = message.find(name); at != std::string::npos;
       at = message.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end == message.size() || std::isalnum(static_cast<unsigned char>(message[end])) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

void rethrow_with_name(const Dataset& dataset, std::int64_t index) {
  rethrow_with_name(name_or_number(dataset, index));
}

void rethrow_with_name(const std::string& name) {
  const auto named = [&](const std::exception& error) {
    const std::string message = message_of(error);
    return has_name(message, name) ? message : name + ": " + message;
  };
  try {
    throw;
  } catch (const DataError& error) {
    throw DataError(named(error));
  } catch (const ConfigError& error) {
    throw ConfigError(named(error));
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) throw;
    throw Error(named(error));
  } catch (const std::exception& error) {
    throw DataError(named(error));
  }
}

}  // namespace lockstep::data
