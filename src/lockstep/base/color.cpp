#include "lockstep/base/color.h"

#include <cstdlib>

#include <unistd.h>

namespace lockstep {

bool shows_color(std::FILE* stream) {
  const char* const no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* const terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string_view(terminal) == "dumb") return false;
  return ::isatty(::fileno(stream)) == 1;
}

std::string colored(std::string_view text, TextColor color) {
  const char* const code = color == TextColor::kRed ? "\x1b[1;31m" : "\x1b[1;33m";
  return std::string(code).append(text).append("\x1b[0m");
}

std::string colored_on(std::FILE* stream, std::string_view text, TextColor color) {
  return shows_color(stream) ? colored(text, color) : std::string(text);
}

}  // namespace lockstep
