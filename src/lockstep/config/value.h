// Reads a node as a value of a C++ type. Value<T> has
//
//   static std::string type();             "integer", for messages and `lockstep targets`
//   static T read(const Node& node);       throws LocatedError
//   static std::string show(const T&);     a default, as a user would write it
//
// Specialise it for your own types, or, for an enumeration, EnumNames.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/config/node.h"

namespace lockstep::config {

// Parse plain scalars. Nothing if the text is of another type.
std::optional<bool> parse_bool(std::string_view text);
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);  // an integer is a number, too

// The value as a user would write it: a number in the shortest form that reads back the same, and
// text in quotes if it needs them.
std::string show_double(double value);
std::string show_text(const std::string& text);

bool read_bool(const Node& node);
std::int64_t read_int(const Node& node, std::int64_t least, std::int64_t most);
double read_double(const Node& node);
std::string read_text(const Node& node);

template <typename T>
struct Value;

template <>
struct Value<bool> {
  static std::string type() { return "true or false"; }
  static bool read(const Node& node) { return read_bool(node); }
  static std::string show(bool value) { return value ? "true" : "false"; }
};

template <typename T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct Value<T> {
  static std::string type() { return "integer"; }
  static T read(const Node& node) {
    // Integers are read as int64, so a larger seed cannot be written.
    constexpr auto most = std::numeric_limits<T>::max();
    constexpr auto largest = std::numeric_limits<std::int64_t>::max();
    return static_cast<T>(
        read_int(node, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                 std::cmp_less(most, largest) ? static_cast<std::int64_t>(most) : largest));
  }
  static std::string show(T value) { return std::to_string(value); }
};

template <>
struct Value<double> {
  static std::string type() { return "number"; }
  static double read(const Node& node) { return read_double(node); }
  static std::string show(double value) { return show_double(value); }
};

template <>
struct Value<std::string> {
  static std::string type() { return "text"; }
  static std::string read(const Node& node) { return read_text(node); }
  static std::string show(const std::string& value) { return show_text(value); }
};

template <>
struct Value<std::filesystem::path> {
  static std::string type() { return "path"; }
  static std::filesystem::path read(const Node& node) { return read_text(node); }
  static std::string show(const std::filesystem::path& value) { return show_text(value.string()); }
};

// Written in seconds.
template <>
struct Value<std::chrono::milliseconds> {
  static std::string type() { return "seconds"; }
  static std::chrono::milliseconds read(const Node& node) {
    const double seconds = read_double(node);
    if (!(seconds >= 0 && seconds < 1e9)) {
      node.fail("expected a number of seconds >= 0, got {}", node.text());
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }
  static std::string show(std::chrono::milliseconds value) {
    return show_double(static_cast<double>(value.count()) / 1000);
  }
};

// Null, or a key that is left out, means nothing.
template <typename T>
struct Value<std::optional<T>> {
  static std::string type() { return Value<T>::type(); }
  static std::optional<T> read(const Node& node) {
    if (node.is_null()) return std::nullopt;
    return Value<T>::read(node);
  }
  static std::string show(const std::optional<T>& value) {
    return value ? Value<T>::show(*value) : "";
  }
};

// A single value is read as a list with one item.
template <typename T>
struct Value<std::vector<T>> {
  static std::string type() { return "list of " + Value<T>::type(); }
  static std::vector<T> read(const Node& node) {
    if (!node.is_list()) {
      if (node.is_scalar()) return {Value<T>::read(node)};
      node.fail("expected a {}, got {}", type(), node.describe());
    }
    std::vector<T> values;
    for (const Node& item : node.items()) values.push_back(Value<T>::read(item));
    return values;
  }
  static std::string show(const std::vector<T>& values) {
    std::vector<std::string> shown;
    for (const T& value : values) shown.push_back(Value<T>::show(value));
    return fmt::format("[{}]", join(shown, ", "));
  }
};

template <typename T>
struct Value<std::map<std::string, T>> {
  static std::string type() { return "mapping of names to " + Value<T>::type(); }
  static std::map<std::string, T> read(const Node& node) {
    if (!node.is_map()) node.fail("expected a {}, got {}", type(), node.describe());
    std::map<std::string, T> values;
    for (const auto& [key, value] : node.entries()) values.emplace(key, Value<T>::read(value));
    return values;
  }
  static std::string show(const std::map<std::string, T>& values) {
    std::vector<std::string> shown;
    for (const auto& [key, value] : values) shown.push_back(key + ": " + Value<T>::show(value));
    return fmt::format("{{{}}}", join(shown, ", "));
  }
};

// 3 is an integer, 3.0 a number.
template <>
struct Value<std::variant<std::int64_t, double>> {
  using T = std::variant<std::int64_t, double>;
  static std::string type() { return "integer or number"; }
  static T read(const Node& node) {
    if (node.is_scalar() && node.is_plain()) {
      if (const auto integer = parse_int(node.text())) return *integer;
    }
    return read_double(node);
  }
  static std::string show(const T& value) {
    return std::visit([](auto held) { return Value<decltype(held)>::show(held); }, value);
  }
};

// The names of the values of an enumeration. Specialise it with
//   static constexpr std::pair<E, const char*> names[] = {{E::kEpoch, "epoch"}, …};
template <typename E>
struct EnumNames;

template <typename E>
requires std::is_enum_v<E>
struct Value<E> {
  static std::vector<std::string> known() {
    std::vector<std::string> names;
    for (const auto& [value, name] : EnumNames<E>::names) names.emplace_back(name);
    return names;
  }
  static std::string type() { return join(known(), " or "); }
  static E read(const Node& node) {
    const std::string text = read_text(node);
    for (const auto& [value, name] : EnumNames<E>::names) {
      if (text == name) return value;
    }
    const auto names = known();
    node.fail("expected {}, got '{}'; {}", type(), text, suggest(text, names));
  }
  static std::string show(E shown) {
    for (const auto& [value, name] : EnumNames<E>::names) {
      if (value == shown) return name;
    }
    return "?";
  }
};

}  // namespace lockstep::config
