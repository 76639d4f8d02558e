// Calls of C libraries that report an error by a jump out of the call.
#pragma once

#include <csetjmp>

namespace lockstep::data {

// Calls body(context). False if a function below it jumped to `jump`. It has no variable that
// changes after setjmp(), so none is undefined after the jump.
inline bool call_until_jump(std::jmp_buf& jump, void (*body)(void*), void* context) {
  if (setjmp(jump) != 0) return false;
  body(context);
  return true;
}

// Calls `body`. False if a function in it jumped to `jump`. Destructors are not called by a jump,
// so `body` must not have objects that need one: it refers to those of its caller.
template <typename Body>
bool call_until_jump(std::jmp_buf& jump, Body& body) {
  return call_until_jump(
      jump, [](void* context) { (*static_cast<Body*>(context))(); }, &body);
}

}  // namespace lockstep::data
