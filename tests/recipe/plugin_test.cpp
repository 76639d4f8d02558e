// A plugin that works is built and used by tests/command/plugin.sh.
#include "lockstep/recipe/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Plugin, WhatIsNoneIsRefused) {
  EXPECT_THAT(error_of([] { load_plugin("nowhere.so"); }),
              HasSubstr("plugin nowhere.so: No such file"));
  const TemporaryDirectory folder;
  write_file_atomically(folder / "text.so", "not a library");
  EXPECT_THAT(error_of([&] { load_plugin(folder / "text.so"); }), HasSubstr("plugin "));
  // A library, but not a plugin of Lockstep.
  for (const char* const path :
       {"/usr/lib/x86_64-linux-gnu/libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1"}) {
    if (!std::filesystem::exists(path)) continue;
    EXPECT_THAT(error_of([&] { load_plugin(path); }), HasSubstr("it has no lockstep_plugin_for"));
  }
}

}  // namespace
}  // namespace lockstep::recipe
