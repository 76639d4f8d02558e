#include "lockstep/log/console.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr int kUsualWidth = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";

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

// The first `columns` code points; what a bar is made of takes a column each.
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
      width_(options.width) {}

Console& Console::standard() {
  static Console console;
  return console;
}

void Console::line(std::string_view text) {
  interrupt([&] {
    std::fwrite(text.data(), 1, text.size(), stream_);
    std::fputc('\n', stream_);
  });
}

void Console::show_bar(std::string_view text) {
  if (!terminal_) return;
  std::lock_guard lock(mutex_);
  // The last column stays free: some terminals wrap when it is written.
  bar_ = cut(text, width() - 1);
  draw_bar();
}

void Console::clear_bar() {
  std::lock_guard lock(mutex_);
  erase_bar();
  bar_.clear();
}

void Console::interrupt(const std::function<void()>& print) {
  std::lock_guard lock(mutex_);
  erase_bar();
  print();
  std::fflush(stream_);
  draw_bar();
}

int Console::width() const {
  if (width_) return *width_;
  winsize size{};
  if (::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualWidth;
}

void Console::erase_bar() {
  if (bar_.empty()) return;
  std::fwrite(kEraseLine.data(), 1, kEraseLine.size(), stream_);
  std::fflush(stream_);
}

void Console::draw_bar() {
  if (bar_.empty()) return;
  const std::string text = std::string(kEraseLine) + bar_;
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
}

}  // namespace lockstep
