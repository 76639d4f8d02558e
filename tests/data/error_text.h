// The message of the exception that a call throws. Empty if it throws nothing or another type.
#pragma once

#include <string>
#include <utility>

template <typename E, typename Call>
std::string error_text(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}
