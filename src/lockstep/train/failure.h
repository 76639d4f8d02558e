// An exception that ends a run, as the user reads it: without LibTorch's stack frames, and with the
// place where it happened.
#pragma once

#include <exception>
#include <string>

namespace lockstep {

// Throws the exception that is being handled once more, with "<place>: " before its message. Where
// the place cannot be added, or is in the message already, it is thrown as it is:
//   - LibTorch's errors stay c10::Error (or OutOfMemoryError, IndexError, …) and lose their frames;
//   - Error and those derived from it in base/error.h, and std::runtime_error, keep their type;
//   - exceptions of other types, the user's own, are not touched, as a copy could not be made;
//   - WorkerError and CommError say already which rank failed where.
// An empty place adds nothing. Called in a catch block only.
[[noreturn]] void rethrow_from(const std::string& place);

}  // namespace lockstep
