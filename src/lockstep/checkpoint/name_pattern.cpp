#include "lockstep/checkpoint/name_pattern.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

bool is_integer(std::string_view field) {
  return field == "epoch" || field == "step";
}

}  // namespace

NamePattern::NamePattern(std::string pattern) : pattern_(std::move(pattern)) {
  const auto fail = [this](const std::string& why) {
    throw ConfigError("name of checkpoints '{}': {}", printable(pattern_), why);
  };
  std::string_view rest = pattern_;
  while (!rest.empty()) {
    const std::size_t open = rest.find_first_of("{}");
    Piece piece{.text = std::string(rest.substr(0, open)), .field = {}, .format = {}};
    rest.remove_prefix(std::min(open, rest.size()));
    if (!rest.empty()) {
      const std::size_t close = rest.find('}');
      if (rest.front() == '}' || close == std::string_view::npos) fail("its braces do not match");
      const std::string_view inside = rest.substr(1, close - 1);
      const std::size_t colon = inside.find(':');
      piece.field = inside.substr(0, colon);
      if (piece.field.empty())
        fail(
            "a field has no name; expected {epoch}, {step}, {score} or a "
            "metric such as {valid_loss}");
      if (colon != std::string_view::npos) piece.format = inside.substr(colon + 1);
      rest.remove_prefix(close + 1);
    }
    pieces_.push_back(std::move(piece));
  }
  if (!has("epoch") && !has("step")) {
    fail("expected {epoch} or {step} in it, because two checkpoints must not have the same name");
  }
  const std::string example = name([](const std::string& field) {
    return is_integer(field) ? Value(std::int64_t{1}) : Value(0.5);
  });
  const bool is_file_name = example.front() != '.' && example.find('/') == std::string::npos &&
                            printable(example) == example;
  if (!is_file_name) fail("expected a name that a file can have, without a folder");
}

std::vector<std::string> NamePattern::fields() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_) {
    if (!piece.field.empty()) names.push_back(piece.field);
  }
  return names;
}

bool NamePattern::has(std::string_view field) const {
  return std::ranges::any_of(pieces_, [&](const Piece& piece) { return piece.field == field; });
}

std::string NamePattern::name(
    const std::function<Value(const std::string& field)>& value_of) const {
  std::string name;
  for (const Piece& piece : pieces_) {
    name += piece.text;
    if (piece.field.empty()) continue;
    try {
      const std::string format = "{:" + piece.format + "}";
      name += std::visit([&](auto value) { return fmt::format(fmt::runtime(format), value); },
                         value_of(piece.field));
    } catch (const fmt::format_error& error) {
      throw ConfigError(
          "name of checkpoints '{}': the format '{}' of {{{}}}: {}; expected one for {}", pattern_,
          piece.format, piece.field, error.what(),
          is_integer(piece.field) ? "an integer, such as 04d" : "a real number, such as .3f");
    }
  }
  const bool has_ending = pattern_.ends_with(".pth") || pattern_.ends_with(".pt");
  return has_ending ? name : name + ".pth";
}

}  // namespace lockstep::checkpoint
