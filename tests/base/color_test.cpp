#include "lockstep/base/color.h"

#include <cstdlib>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Provides a pseudo terminal, as a program sees it, and sets the variables that shows_color()
// reads.
class TerminalTest : public ::testing::Test {
 protected:
  TerminalTest() {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    terminal_ = std::fopen(::ptsname(master_), "w");
    ::setenv("TERM", "xterm-256color", 1);
    ::unsetenv("NO_COLOR");
  }
  ~TerminalTest() override {
    std::fclose(terminal_);
    ::close(master_);
    ::unsetenv("TERM");
    ::unsetenv("NO_COLOR");
  }

  int master_ = -1;
  std::FILE* terminal_ = nullptr;
};

TEST_F(TerminalTest, ATerminalGetsColourAndAResetAfterIt) {
  ASSERT_NE(terminal_, nullptr);
  EXPECT_EQ(colored_on(terminal_, "error", TextColor::kRed), "\x1b[1;31merror\x1b[0m");
  EXPECT_EQ(colored_on(terminal_, "warning", TextColor::kYellow), "\x1b[1;33mwarning\x1b[0m");
}

TEST_F(TerminalTest, NoColorAndADumbTerminalAreRespected) {
  ASSERT_NE(terminal_, nullptr);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(colored_on(terminal_, "error", TextColor::kRed), "error");
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(shows_color(terminal_)) << "an empty NO_COLOR has no effect";
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(shows_color(terminal_));
}

TEST_F(TerminalTest, AFileGetsNone) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(colored_on(file, "error", TextColor::kRed), "error");
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep
