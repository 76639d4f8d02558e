#include "lockstep/log/console.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/log/captured_stream.h"
#include "tests/log/pseudo_terminal.h"

namespace lockstep {
namespace {

TEST(Console, LinesAreFlushedAtOnce) {
  CapturedStream stream;
  Console console({.stream = stream.file()});
  console.line("hello");
  EXPECT_EQ(stream.flushed(), "hello\n");
}

TEST(Console, LinesGoAboveTheBar) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 80});
  console.show_bar("50%");
  console.line("train (1/8) loss: 0.5");
  EXPECT_EQ(screen(stream.flushed()), "train (1/8) loss: 0.5\n50%");
  console.show_bar("60%");
  EXPECT_EQ(screen(stream.flushed()), "train (1/8) loss: 0.5\n60%");
  console.clear_bar();
  EXPECT_EQ(screen(stream.flushed()), "train (1/8) loss: 0.5\n");
  console.line("end");
  EXPECT_EQ(screen(stream.flushed()), "train (1/8) loss: 0.5\nend\n");
}

TEST(Console, WhatIsPrintedInAnInterruptIsAboveTheBar) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 80});
  console.show_bar("50%");
  console.interrupt([&] { std::fputs("a warning\n", stream.file()); });
  EXPECT_EQ(screen(stream.flushed()), "a warning\n50%");
}

// A warning handler may pass the warning on to a handler that interrupts the same console.
TEST(Console, AnInterruptMayUseTheConsole) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 80});
  console.show_bar("50%");
  console.interrupt([&] {
    console.interrupt([&] { std::fputs("a warning\n", stream.file()); });
    EXPECT_EQ(screen(stream.flushed()), "a warning\n") << "the outer interrupt is not over";
    console.line("a line");
    console.show_bar("60%");
    std::fputs("another warning\n", stream.file());
  });
  EXPECT_EQ(screen(stream.flushed()), "a warning\na line\nanother warning\n60%");
}

TEST(Console, AnInterruptThatThrowsShowsTheBarAgain) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 80});
  console.show_bar("50%");
  EXPECT_THROW(console.interrupt([] { throw Error("a handler failed"); }), Error);
  EXPECT_EQ(screen(stream.flushed()), "50%");
}

TEST(Console, ABarIsCutToTheWidthInColumnsNotBytes) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 5});
  console.show_bar("████████");
  EXPECT_EQ(screen(stream.flushed()), "████");
}

TEST(Console, AFinishedBarIsALineCutToTheWidth) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = true, .width = 9});
  console.show_bar("50% of it all");
  console.finish_bar("100% of it all");
  console.line("what follows is not cut");
  EXPECT_EQ(screen(stream.flushed()), "100% of \nwhat follows is not cut\n");
}

// A bar of 59 columns is drawn in a window of 60. When the window has 25 columns, the bar is on
// three rows, and the cursor is on the last of them. So the rows to erase begin two rows up.
TEST(Console, ABarInAWindowThatBecameNarrowerLeavesNothingBehind) {
  PseudoTerminal terminal;
  terminal.resize(60);
  Console console({.stream = terminal.file(), .rewraps = true});
  console.show_bar(std::string(80, 'x'));
  EXPECT_EQ(terminal.written(), std::string(59, 'x'));
  terminal.resize(25);
  console.show_bar(std::string(80, 'y'));
  EXPECT_EQ(terminal.written(), "\x1b[2A\r\x1b[J" + std::string(24, 'y'));
  console.show_bar("z");
  EXPECT_EQ(terminal.written(), "\r\x1b[Kz") << "the new bar is on one row";
}

TEST(Console, ALineAboveABarInANarrowerWindow) {
  PseudoTerminal terminal;
  terminal.resize(60);
  Console console({.stream = terminal.file(), .rewraps = true});
  console.show_bar(std::string(80, 'x'));
  terminal.resize(40);
  terminal.written();
  console.line("a line");
  EXPECT_EQ(terminal.written(), "\x1b[1A\r\x1b[Ja line\n" + std::string(39, 'x'));
}

// If more rows were erased, the output above the bar would lose a row.
TEST(Console, ATerminalThatCutsLinesHasTheBarOnOneRow) {
  PseudoTerminal terminal;
  terminal.resize(60);
  Console console({.stream = terminal.file(), .rewraps = false});
  console.show_bar(std::string(80, 'x'));
  terminal.resize(25);
  terminal.written();
  console.show_bar("y");
  EXPECT_EQ(terminal.written(), "\r\x1b[Ky");
}

TEST(Console, NoBarAndNoControlCodesWhereThereIsNoTerminal) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = false});
  console.show_bar("50%");
  console.line("x");
  console.clear_bar();
  EXPECT_EQ(stream.flushed(), "x\n");
}

// Sets the variables of the locale, and sets them back when it is destroyed.
class Locale {
 public:
  Locale(const char* all, const char* lang) {
    set("LC_ALL", all, all_);
    set("LC_CTYPE", "", ctype_);
    set("LANG", lang, lang_);
  }
  ~Locale() {
    std::string ignored;
    set("LC_ALL", all_.c_str(), ignored);
    set("LC_CTYPE", ctype_.c_str(), ignored);
    set("LANG", lang_.c_str(), ignored);
  }

 private:
  static void set(const char* name, const char* value, std::string& old) {
    const char* current = std::getenv(name);
    old = current == nullptr ? "" : current;
    ::setenv(name, value, 1);
  }
  std::string all_, ctype_, lang_;
};

TEST(Console, TheLocaleSaysWhetherUtf8IsShown) {
  CapturedStream stream;
  const auto utf8 = [&] { return Console({.stream = stream.file()}).utf8(); };
  {
    Locale locale("", "de_DE.UTF-8");
    EXPECT_TRUE(utf8());
  }
  {
    Locale locale("", "C.utf8");
    EXPECT_TRUE(utf8());
  }
  {
    Locale locale("C", "de_DE.UTF-8");
    EXPECT_FALSE(utf8());
  }
  {
    Locale locale("", "");
    EXPECT_FALSE(utf8());
  }
}

}  // namespace
}  // namespace lockstep
