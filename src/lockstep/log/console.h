// One object owns the last line of the terminal, so that lines are printed above a progress bar and
// do not overwrite it.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ConsoleOptions {
  std::FILE* stream = stdout;         // stays open as long as the console lives
  std::optional<bool> terminal = {};  // whether a bar can be redrawn in place; default: isatty()
  std::optional<int> width = {};      // columns; default: the terminal's, which may change
  std::optional<bool> utf8 = {};  // whether it shows UTF-8; default: by LC_ALL, LC_CTYPE or LANG
  // Whether a window that is made narrower wraps the lines that it shows. Most terminals do. By
  // default, TERM, XTERM_VERSION and STY decide.
  std::optional<bool> rewraps = {};
};

// May be used by several threads.
class Console {
 public:
  explicit Console(const ConsoleOptions& options = {});
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // The console of standard output. All callers in the process share it.
  static Console& standard();

  // Prints and flushes `text` as a line. A bar moves below it.
  void line(std::string_view text);

  // Shows `text`, cut to the terminal's width, as the bar, and replaces the earlier one. Does
  // nothing if the stream is not a terminal.
  void show_bar(std::string_view text);

  // Removes the bar and prints `text` in its place as a line, cut to the terminal's width.
  void finish_bar(std::string_view text);
  void clear_bar();

  // Runs `print`, which writes whole lines to the terminal without this console. They appear above
  // the bar, which is hidden meanwhile. The console is not locked while `print` runs, so `print`
  // may call anything, also this console. Lines of several threads mix if one call of a function of
  // stdio does not write the whole line.
  void interrupt(const std::function<void()>& print);

  bool is_terminal() const { return terminal_; }
  bool utf8() const { return utf8_; }
  int width() const;

 private:
  std::string_view fitted(std::string_view text) const;
  void erase_bar();
  void draw_bar();
  void hide_bar();
  void unhide_bar();

  std::FILE* stream_;
  bool terminal_;
  bool utf8_;
  bool rewraps_;
  std::optional<int> width_;
  std::mutex mutex_;
  std::string bar_;  // empty if there is none
  int hidden_ = 0;   // calls of interrupt() that run; the bar is not drawn before the last one ends
};

}  // namespace lockstep
