// Your own classes for `lockstep run --plugin libmine.so`, in a shared library:
//
//   #include <lockstep/recipe/plugin.h>
//
//   LOCKSTEP_PLUGIN(targets) {
//     targets.models.add<WideNetOptions>("WideNet", …);
//   }
//
// In CMake: find_package(lockstep), then lockstep_add_plugin(mine mine.cpp). A plugin uses the copy
// of Lockstep in the command, so it must be built for the same version.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/base/version.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

// The version that a plugin must be built for: the one of this build.
std::string plugin_version();

// Loads the library and lets it add its targets. The library stays loaded until the process ends;
// loading it again does nothing. Throws ConfigError if it cannot be loaded, is not a plugin, or is
// for another version.
void load_plugin(const std::filesystem::path& path);

}  // namespace lockstep::recipe

#define LOCKSTEP_PLUGIN(targets)                                                        \
  extern "C" __attribute__((visibility("default"))) const char* lockstep_plugin_for() { \
    return LOCKSTEP_VERSION;                                                            \
  }                                                                                     \
  extern "C" __attribute__((visibility("default"))) void lockstep_plugin(               \
      [[maybe_unused]] ::lockstep::recipe::Targets& targets)
