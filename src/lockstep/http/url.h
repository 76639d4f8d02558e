// Parts of web addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

// "a plot.svg" -> "a%20plot.svg". Everything but letters, digits and - . _ ~ is escaped.
std::string escaped(std::string_view text);
// The same for a path: its slashes stay.
std::string escaped_path(std::string_view path);

std::string unescaped(std::string_view text);

// "http://user:secret@host/path/" in its parts.
struct Address {
  std::string url = {};  // "http://host/path", without the user and the last slash
  std::optional<std::string> username = {};
  std::optional<std::string> password = {};
};
Address split_address(std::string url);

}  // namespace lockstep::http
