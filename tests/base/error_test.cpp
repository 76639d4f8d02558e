#include "lockstep/base/error.h"

#include <filesystem>
#include <new>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, CannotSteerATerminal) {
  const ConfigError error("no key '{}'\nknown: {}", "\x1b[2Ja", "b");
  EXPECT_STREQ(error.what(), "no key '\\x1b[2Ja'\nknown: b");
  EXPECT_STREQ(Error(std::string("\x07")).what(), "\\x07");
}

TEST(MessageOf, LeavesOutTheStackFramesOfLibTorch) {
  EXPECT_EQ(message_of(std::runtime_error("bad shape\nException raised from f at a.cpp:3 (most "
                                          "recent call first):\nframe #0: 0x1")),
            "bad shape");
  EXPECT_EQ(message_of(std::runtime_error("no memory\nframe #0: c10::f() + 0x1")), "no memory");
  EXPECT_EQ(message_of(std::runtime_error("two\nlines")), "two\nlines");
}

TEST(MessageOf, SaysWhatTheStandardLibraryOnlyHints) {
  EXPECT_EQ(message_of(std::bad_alloc()),
            "not enough memory: a smaller batch_size or fewer workers need less");
  try {
    static_cast<void>(std::filesystem::file_size("/no/such/file"));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_EQ(message_of(error), "/no/such/file: No such file or directory");
  }
}

TEST(ExitCodeOf, TellsALauncherThatAnOptionIsWrong) {
  EXPECT_EQ(exit_code_of(ConfigError("x")), 2);
  EXPECT_EQ(exit_code_of(DataError("x")), 1);
  EXPECT_EQ(exit_code_of(std::runtime_error("x")), 1);
}

}  // namespace
}  // namespace lockstep
