// Small helpers for the messages that a user reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate with the smallest edit distance to `name`, if it is close enough to be what the
// user meant.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

// The candidates that the user may have meant, the nearest first, at most `most` of them.
std::vector<std::string> nearest_names(std::string_view name,
                                       std::span<const std::string> candidates, std::size_t most);

// A message lists at most this many names.
inline constexpr std::size_t kFewNames = 12;

// "did you mean 'valid'? known: train, valid": the end of an error about an unknown name. If there
// are many candidates, it lists only the nearest few.
std::string suggest(std::string_view name, std::span<const std::string> candidates);

// "a, b, c". Of many names it lists the first ones: "a, b, …, l, … (78 more)".
std::string list_some(std::span<const std::string> names);

// Whether a name fits a pattern, as a shell compares them: * stands for anything, ? for one
// character, [abc] for one of these.
bool matches_pattern(const std::string& pattern, const std::string& name);

std::string join(std::span<const std::string> parts, std::string_view separator);

// 1234567 -> "1,234,567"
std::string with_thousands(std::int64_t value);

// 3.2 -> "3.2 s", 75 -> "1:15", 3725 -> "1:02:05"
std::string format_duration(double seconds);
inline std::string format_duration(std::chrono::duration<double> time) {
  return format_duration(time.count());
}

// 1536 -> "1.5 KiB"
std::string format_bytes(double bytes);

// A metric as Catalyst prints it: 3 decimals, or 1.234e-05 when it would show as zero.
std::string format_metric(double value);

// 64 bits as 16 lower-case hexadecimal digits.
std::string to_hex(std::uint64_t value);

bool is_utf8(std::string_view text);

// Text of unknown origin (a key in a file, a module's name), safe to show on a terminal: control
// characters, bytes that are not UTF-8 and characters that change the direction of the text become
// visible, as \x1b or \u202e. Everything else stays, a backslash included, so a second call changes
// nothing.
std::string printable(std::string_view text);

// The same for a whole message: its line breaks and tabs stay.
std::string printable_lines(std::string_view text);

// printable() of text that may be long: of more than `most` bytes it has the first ones and "…".
std::string excerpt(std::string_view text, std::size_t most = 60);

}  // namespace lockstep
