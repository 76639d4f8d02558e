#include "lockstep/config/value.h"

#include <charconv>
#include <cmath>

namespace lockstep::config {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Whether a plain scalar is a number, true or false in the core schema of YAML 1.2.
bool is_typed(const std::string& text) {
  return parse_bool(text) || parse_double(text);
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") {
    return negative ? -HUGE_VAL : HUGE_VAL;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return std::nan("");
  // from_chars also accepts "inf" and "nan", which are text in YAML.
  if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return negative ? -value : value;
}

std::string show_double(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  return fmt::format("{}", value);
}

std::string show_text(const std::string& text) {
  const bool simple =
      !text.empty() && text.find_first_of(" \t\n:#,[]{}&*!|>'\"%@`") == std::string::npos &&
      text != "null" && text != "~" && text[0] != '-' && text[0] != '?' && !is_typed(text);
  return simple ? text : "\"" + text + "\"";
}

bool read_bool(const Node& node) {
  if (node.is_scalar() && node.is_plain()) {
    if (const auto value = parse_bool(node.text())) return *value;
  }
  node.fail("expected true or false, got {}", node.describe());
}

std::int64_t read_int(const Node& node, std::int64_t least, std::int64_t most) {
  if (!node.is_scalar() || !node.is_plain()) {
    node.fail("expected an integer, got {}", node.describe());
  }
  auto value = parse_int(node.text());
  if (!value) {
    // 1e3 and 64.0 are integers, written as numbers.
    const auto number = parse_double(node.text());
    constexpr double kExact = 9007199254740992;  // 2^53; larger doubles skip integers
    if (number && std::trunc(*number) == *number && std::abs(*number) < kExact) {
      value = static_cast<std::int64_t>(*number);
    }
  }
  if (!value) node.fail("expected an integer, got {}", node.describe());
  if (*value < least || *value > most) {
    node.fail("expected an integer from {} to {}, got {}", least, most, node.text());
  }
  return *value;
}

double read_double(const Node& node) {
  if (node.is_scalar() && node.is_plain()) {
    if (const auto value = parse_double(node.text())) return *value;
  }
  node.fail("expected a number, got {}", node.describe());
}

std::string read_text(const Node& node) {
  // A number may be text, too, for example the name of a folder.
  if (!node.is_scalar()) node.fail("expected text, got {}", node.describe());
  return node.text();
}

}  // namespace lockstep::config
