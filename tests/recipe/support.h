// Functions that the tests of recipe share.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "lockstep/config/yaml.h"

namespace lockstep::recipe::testing {

inline config::Node node(const std::string& text) {
  return *config::parse_yaml("it: " + text, "a.yml").find("it");
}

// The message of the ConfigError that `work` throws; "" if it throws none.
template <typename F>
std::string error_of(F&& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::recipe::testing
