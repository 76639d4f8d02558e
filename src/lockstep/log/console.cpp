#include "lockstep/log/console.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr int kUsualWidth = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::string_view kEraseBelow = "\r\x1b[J";  // this row and all below it

bool locale_is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    std::string name = value;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

// xterm, the Linux console and GNU screen cut lines when they become narrower. Other terminals wrap
// them. If it is not known (a multiplexer inside of xterm), this assumes that lines are cut. Pieces
// of a bar may then stay on the screen, but erasing one row too many would remove a line of output.
bool terminal_rewraps() {
  const char* const terminal = std::getenv("TERM");
  const bool cuts = terminal == nullptr || std::string_view(terminal).starts_with("linux") ||
                    std::getenv("XTERM_VERSION") != nullptr || std::getenv("STY") != nullptr;
  return !cuts;
}

int columns_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// The first `columns` code points. Each character of a bar takes one column.
std::string_view cut(std::string_view text, int columns) {
  int seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
    if (++seen > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

Console::Console(const ConsoleOptions& options)
    : stream_(options.stream),
      terminal_(options.terminal.value_or(::isatty(::fileno(options.stream)) == 1)),
      utf8_(options.utf8.value_or(locale_is_utf8())),
      rewraps_(options.rewraps.value_or(terminal_rewraps())),
      width_(options.width) {}

Console& Console::standard() {
  static Console console;  // one, because the process has only one standard output
  return console;
}

void Console::line(std::string_view text) {
  std::lock_guard lock(mutex_);
  erase_bar();
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fputc('\n', stream_);
  std::fflush(stream_);
  draw_bar();
}

void Console::show_bar(std::string_view text) {
  if (!terminal_) return;
  std::lock_guard lock(mutex_);
  erase_bar();
  bar_ = text;
  draw_bar();
}

void Console::finish_bar(std::string_view text) {
  clear_bar();
  line(terminal_ ? fitted(text) : text);
}

// The last column stays empty, because some terminals wrap when it is written.
std::string_view Console::fitted(std::string_view text) const {
  return cut(text, std::max(width() - 1, 1));
}

void Console::clear_bar() {
  std::lock_guard lock(mutex_);
  erase_bar();
  std::fflush(stream_);
  bar_.clear();
}

void Console::interrupt(const std::function<void()>& print) {
  struct Hidden {
    explicit Hidden(Console& console) : console(console) { console.hide_bar(); }
    ~Hidden() { console.unhide_bar(); }
    Hidden(const Hidden&) = delete;
    Hidden& operator=(const Hidden&) = delete;
    Console& console;
  } const hidden(*this);
  print();
}

void Console::hide_bar() {
  std::lock_guard lock(mutex_);
  erase_bar();
  std::fflush(stream_);  // the next text may go to another stream
  ++hidden_;
}

void Console::unhide_bar() {
  std::lock_guard lock(mutex_);
  std::fflush(stream_);
  --hidden_;
  draw_bar();
}

int Console::width() const {
  if (width_) return *width_;
  winsize size{};
  if (::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualWidth;
}

// If the window was made narrower after the bar was drawn, the bar is now on several rows, and the
// cursor is on the last of them.
void Console::erase_bar() {
  if (bar_.empty() || hidden_ > 0) return;
  const int rows_above = rewraps_ ? (columns_of(bar_) - 1) / std::max(width(), 1) : 0;
  const std::string erase =
      rows_above > 0 ? fmt::format("\x1b[{}A{}", rows_above, kEraseBelow) : std::string(kEraseLine);
  std::fwrite(erase.data(), 1, erase.size(), stream_);
}

void Console::draw_bar() {
  if (bar_.empty() || hidden_ > 0) return;
  bar_ = fitted(bar_);  // the window may have become narrower since the bar was made
  std::fwrite(bar_.data(), 1, bar_.size(), stream_);
  std::fflush(stream_);
}

}  // namespace lockstep
