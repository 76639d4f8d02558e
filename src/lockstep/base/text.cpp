#include "lockstep/base/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fnmatch.h>

namespace lockstep {
namespace {

// Levenshtein distance; upper and lower case count as equal.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(static_cast<unsigned char>(a[i - 1])) ==
                        std::tolower(static_cast<unsigned char>(b[j - 1]));
      const std::size_t substituted = diagonal + (same ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with UTF-8
};

// The character at the beginning of `text`, which is not empty.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (bytes == 0 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t value = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fU);
  }
  // Not valid: an overlong encoding, a UTF-16 surrogate, or a value beyond Unicode.
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[bytes] || is_surrogate || value > 0x10ffff) return {};
  return {value, bytes};
}

// Whether the character moves the cursor, changes the direction of the text or breaks the line.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

std::string escaped(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  return c < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                   : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
}

std::string printable_but(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const auto [value, bytes] = first_code_point(text);
    if (bytes == 0) {
      out += escaped(static_cast<unsigned char>(text[0]));
    } else if (is_control(value) && kept.find(text[0]) == kept.npos) {
      out += escaped(value);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, std::size_t most) {
  struct Near {
    std::size_t distance;
    const std::string* name;
  };
  const std::size_t farthest = std::max<std::size_t>(2, name.size() / 2);
  std::vector<Near> near;
  for (const auto& candidate : candidates) {
    std::size_t distance = edit_distance(name, candidate);
    // "acc" has a large edit distance to "accuracy01", but the user probably meant it.
    const bool prefix = name.size() >= 3 && candidate.starts_with(name);
    if (prefix) distance = std::min<std::size_t>(distance, 2);
    // Two edits change all of a name of two letters, so any other short name would be "near".
    if (distance >= std::max(name.size(), candidate.size()) || distance > farthest) continue;
    near.push_back({distance, &candidate});
  }
  std::ranges::stable_sort(near, {}, &Near::distance);
  std::vector<std::string> names;
  for (const Near& one : near) {
    // If there is a close name, names more than one edit further away are not listed. A name that
    // differs only in case (distance 0) is listed without any others.
    const std::size_t beside = near.front().distance == 0 ? 0 : near.front().distance + 1;
    if (names.size() == most || one.distance > beside) break;
    names.push_back(*one.name);
  }
  return names;
}

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates) {
  const auto nearest = nearest_names(name, candidates, 1);
  return nearest.empty() ? std::nullopt : std::optional(nearest.front());
}

std::string suggest(std::string_view name, std::span<const std::string> candidates) {
  if (candidates.empty()) return "there are none";
  const bool few = candidates.size() <= kFewNames;
  const auto nearest = nearest_names(name, candidates, few ? 1 : 3);
  if (!few && !nearest.empty()) {
    return fmt::format("did you mean '{}'?", fmt::join(nearest, "' or '"));
  }
  const std::string known = "known: " + list_some(candidates);
  return nearest.empty() ? known : fmt::format("did you mean '{}'? {}", nearest.front(), known);
}

std::string list_some(std::span<const std::string> names) {
  if (names.size() <= kFewNames) return join(names, ", ");
  return fmt::format("{}, … ({} more)", join(names.first(kFewNames), ", "),
                     names.size() - kFewNames);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string with_thousands(std::int64_t value) {
  std::string digits = std::to_string(value);
  const int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  // A number that would be rounded to 1024 is shown as 1 of the next unit.
  while (bytes >= (unit == 0 ? 1023.5 : 1023.95) && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_metric(double value) {
  if (std::isnan(value)) return "nan";  // never "-nan"
  const bool tiny = value != 0 && std::abs(value) < 1e-3;
  return tiny ? fmt::format("{:.3e}", value) : fmt::format("{:.3f}", value);
}

std::string to_hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = first_code_point(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  return printable_but(text, "");
}

std::string printable_lines(std::string_view text) {
  return printable_but(text, "\n\t");
}

std::string excerpt(std::string_view text, std::size_t most) {
  if (text.size() <= most) return printable(text);
  // A character of several bytes is not cut.
  constexpr std::size_t kMostContinued = 3;
  const std::size_t least = most - std::min(most, kMostContinued);
  const auto is_continued = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U;
  };
  std::size_t end = most;
  while (end > least && is_continued(end)) --end;
  return printable(text.substr(0, end)) + "…";
}

}  // namespace lockstep
