// Calls of the system that a signal can interrupt.
#pragma once

#include <cerrno>

namespace lockstep {

// Repeats the call while a signal interrupts it: while it returns -1 with EINTR.
template <typename Call>
auto repeat_if_interrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace lockstep
