#include "lockstep/log/hparams_yaml.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <variant>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Words that YAML 1.1 reads as true, false or null.
bool is_reserved(std::string_view text) {
  constexpr std::string_view kReserved[] = {"y",  "yes", "n",    "no",  "true", "false",
                                            "on", "off", "null", "nan", "inf"};
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::any_of(std::begin(kReserved), std::end(kReserved), [&](std::string_view word) {
    return std::equal(text.begin(), text.end(), word.begin(), word.end(), same);
  });
}

// Plain text needs no quotes. It begins with a letter and has only letters, digits and a few signs
// without a meaning in YAML, so it is never read as a number or a date.
bool is_plain(std::string_view text) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
         std::all_of(text.begin(), text.end(), harmless) && !is_reserved(text);
}

std::string scalar(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// Always with a decimal point: without it, 1 would be read as an integer, and YAML 1.1 would read
// 1e-05 as text.
std::string scalar(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos) return text;
  return text.insert(std::min(text.find('e'), text.size()), ".0");
}

std::string scalar(bool value) {
  return value ? "true" : "false";
}

std::string scalar(std::int64_t value) {
  return fmt::format("{}", value);
}

}  // namespace

std::string to_yaml(const HParams& hparams) {
  if (hparams.empty()) return "{}\n";
  std::string text;
  for (const auto& [name, value] : hparams) {
    const std::string right = std::visit([](const auto& v) { return scalar(v); }, value);
    text += fmt::format("{}: {}\n", scalar(std::string_view(name)), right);
  }
  return text;
}

}  // namespace lockstep
