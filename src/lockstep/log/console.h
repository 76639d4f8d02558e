// The terminal's last line has one owner: lines are printed above a progress bar, not through it.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ConsoleOptions {
  std::FILE* stream = stdout;  // stays open as long as the console lives
  std::optional<bool> terminal =
      {};                         // whether a bar can be redrawn in place; else asked of the stream
  std::optional<int> width = {};  // columns; else asked of the terminal, which may be resized
  std::optional<bool> utf8 = {};  // whether it shows UTF-8; else LC_ALL, LC_CTYPE or LANG says
  // Whether a window that is made narrower wraps the lines that it shows. Most terminals do; else
  // TERM and XTERM_VERSION say.
  std::optional<bool> rewraps = {};
};

// May be used by several threads.
class Console {
 public:
  explicit Console(const ConsoleOptions& options = {});
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Standard output's. The process has one, so this is the process's, too.
  static Console& standard();

  // Prints and flushes `text` as a line of its own; a bar moves below it.
  void line(std::string_view text);

  // Shows `text`, cut to the terminal's width, as the bar in place of the one before. Only on a
  // terminal.
  void show_bar(std::string_view text);

  // Takes the bar away and prints `text` in its place as a line, cut to the terminal's width.
  void finish_bar(std::string_view text);
  void clear_bar();

  // Runs `print`, which writes whole lines to the terminal by other ways, above the bar. `print`
  // must not use this console.
  void interrupt(const std::function<void()>& print);

  bool is_terminal() const { return terminal_; }
  bool utf8() const { return utf8_; }
  int width() const;

 private:
  std::string_view fitted(std::string_view text) const;
  void erase_bar();
  void draw_bar();

  std::FILE* stream_;
  bool terminal_;
  bool utf8_;
  bool rewraps_;
  std::optional<int> width_;
  std::mutex mutex_;
  std::string bar_;  // empty where none is shown
};

}  // namespace lockstep
