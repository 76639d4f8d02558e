#include "lockstep/http/url.h"

#include <charconv>

#include <fmt/format.h>

namespace lockstep::http {
namespace {

bool is_plain(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_letter || (c >= '0' && c <= '9') ||
         std::string_view("-._~").find(c) != std::string_view::npos;
}

std::string escape_all_but(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    if (is_plain(c) || kept.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  return escape_all_but(text, "");
}

std::string escaped_path(std::string_view path) {
  return escape_all_but(path, "/");
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    out += is_escape ? static_cast<char>(value) : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

Address split_address(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  Address address{.url = url};
  const auto scheme = url.find("://");
  if (scheme == std::string::npos) return address;
  const auto begin = scheme + 3;
  const auto host = url.substr(begin, url.find('/', begin) - begin).rfind('@');
  if (host == std::string::npos) return address;
  const std::string user = url.substr(begin, host);
  address.url.erase(begin, host + 1);
  const auto colon = user.find(':');
  address.username = unescaped(user.substr(0, colon));
  if (colon != std::string::npos) address.password = unescaped(user.substr(colon + 1));
  return address;
}

}  // namespace lockstep::http
