// An exception that ends a run, as the user reads it: without LibTorch's stack frames, and with the
// place where it happened.
#pragma once

#include <exception>
#include <string>

namespace lockstep {

// Throws the exception that is being handled again, with "<place>: " before its message. If the
// place cannot be added, or is in the message already, the message stays as it is. By type:
//   - LibTorch's errors stay c10::Error (or OutOfMemoryError, IndexError, …) and lose their frames;
//   - Error and its derived types in base/error.h, and std::runtime_error, keep their type;
//   - exceptions of other types, the user's, are not changed, because a copy could not be made;
//   - WorkerError and CommError are not changed: they say already which rank failed and where.
// An empty place adds nothing. Call it in a catch block only.
[[noreturn]] void rethrow_from(const std::string& place);

// The same with an explanation, which is appended to the message in a line of its own, also to that
// of a WorkerError or CommError. If the exception cannot be copied, the explanation becomes a
// warning. An empty explanation adds nothing.
[[noreturn]] void rethrow_with(const std::string& explanation);

}  // namespace lockstep
