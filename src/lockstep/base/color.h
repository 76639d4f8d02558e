// Colour for text that a reader should not miss, on terminals that support it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep {

enum class TextColor { kRed, kYellow };

// Whether colours are shown on `stream`: it is a terminal, TERM is not "dumb", and NO_COLOR
// (https://no-color.org) is unset or empty.
bool shows_color(std::FILE* stream);

// `text` in bold and in the colour, followed by a reset.
std::string colored(std::string_view text, TextColor color);

// The same if `stream` shows colours; otherwise `text` unchanged.
std::string colored_on(std::FILE* stream, std::string_view text, TextColor color);

}  // namespace lockstep
