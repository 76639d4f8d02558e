// The message of what a call throws; empty where it throws nothing, or something else.
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
