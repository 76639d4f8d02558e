// A pseudo terminal. A program writes to one end. A test reads what arrives at the other end, and
// sets the size of the window.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace lockstep {

class PseudoTerminal {
 public:
  PseudoTerminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    file_ = std::fopen(::ptsname(master_), "w");
    termios settings{};
    ::tcgetattr(::fileno(file_), &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // "\n" arrives as it was written
    ::tcsetattr(::fileno(file_), TCSANOW, &settings);
  }
  ~PseudoTerminal() {
    std::fclose(file_);
    ::close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  std::FILE* file() { return file_; }

  void resize(int columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(columns);
    EXPECT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
  }

  // Returns what was written since the last call.
  std::string written() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(master_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  int master_;
  std::FILE* file_;
};

}  // namespace lockstep
