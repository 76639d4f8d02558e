#include "lockstep/train/failure.h"

#include <typeinfo>

#include <c10/util/Exception.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

// LibTorch's what() ends with the stack, or with an empty line if there is no stack.
template <typename E>
class WithoutStack final : public E {
 public:
  // The backtrace is a text in LibTorch 1.13 and a pointer in 2.6; here it is empty in both.
  explicit WithoutStack(const std::string& message) : E(message, /*backtrace=*/{}) {}
  const char* what() const noexcept override { return this->what_without_backtrace(); }
};

std::string placed(const std::string& place, const std::string& message) {
  const bool has_place = place.empty() || message.starts_with(place) ||
                         message.starts_with("loader '") || message.starts_with("rank ");
  return has_place ? message : place + ": " + message;
}

template <typename E>
bool is_exactly(const std::exception& error) {
  return typeid(error) == typeid(E);
}

// Throws the message as an E if the error is exactly an E.
template <typename E>
void throw_if_is(const c10::Error& error, const std::string& message) {
  if (is_exactly<E>(error)) throw WithoutStack<E>(message);
}

[[noreturn]] void throw_torch_error(const c10::Error& error, const std::string& message) {
  throw_if_is<c10::OutOfMemoryError>(error, message);
  throw_if_is<c10::IndexError>(error, message);
  throw_if_is<c10::ValueError>(error, message);
  throw_if_is<c10::TypeError>(error, message);
  throw_if_is<c10::NotImplementedError>(error, message);
  throw_if_is<c10::LinAlgError>(error, message);
  throw WithoutStack<c10::Error>(message);
}

// Throws the message as an exception of the same type, if a copy of that type can be made.
void throw_copy(const std::exception& error, const std::string& message) {
  if (const auto* const torch_error = dynamic_cast<const c10::Error*>(&error)) {
    throw_torch_error(*torch_error, message);
  }
  if (is_exactly<Error>(error)) throw Error(message);
  if (is_exactly<ConfigError>(error)) throw ConfigError(message);
  if (is_exactly<DataError>(error)) throw DataError(message);
  if (is_exactly<CheckpointError>(error)) throw CheckpointError(message);
  if (is_exactly<CommError>(error)) throw CommError(message);
  if (is_exactly<WorkerError>(error)) throw WorkerError(message);
  if (is_exactly<std::runtime_error>(error)) throw std::runtime_error(message);
}

}  // namespace

void rethrow_from(const std::string& place) {
  try {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const WorkerError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = placed(place, message_of(error));
    const bool is_torch = dynamic_cast<const c10::Error*>(&error) != nullptr;
    if (is_torch || message != error.what()) throw_copy(error, message);
    throw;
  }
}

void rethrow_with(const std::string& explanation) {
  try {
    throw;
  } catch (const std::exception& error) {
    if (explanation.empty()) throw;
    throw_copy(error, message_of(error) + "\n" + explanation);
    warn(explanation);
    throw;
  } catch (...) {
    if (!explanation.empty()) warn(explanation);
    throw;
  }
}

}  // namespace lockstep
