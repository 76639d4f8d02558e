#include "lockstep/command/search_space.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/override.h"
#include "lockstep/config/value.h"
#include "lockstep/data/random.h"

namespace lockstep::command {
namespace {

using config::Node;

constexpr std::int64_t kLargestGrid = 1'000'000;
const char* const kForms =
    "choice(a, b, …), uniform(low, high), loguniform(low, high), int(low, high) or "
    "int(low, high, step)";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Splits at commas that are not inside of brackets or quotes.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  char quote = '\0';
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (c == ']' || c == '}' || c == ')') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.emplace_back(trimmed(text.substr(begin)));
  return parts;
}

// "uniform(0, 1)" as a name and its arguments. Nothing if it has another form.
struct Call {
  std::string name;
  std::vector<std::string> arguments;
};
std::optional<Call> parse_call(std::string_view text) {
  text = trimmed(text);
  const auto open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(')')) return std::nullopt;
  return Call{std::string(trimmed(text.substr(0, open))),
              split_arguments(text.substr(open + 1, text.size() - open - 2))};
}

Node parse_value(const std::string& text) {
  Node scratch = Node::map();
  config::apply_override(scratch, "value=" + text);
  return *scratch.find("value");
}

Node rounded_number(double value) {
  return Node::scalar(fmt::format("{:.4g}", value), true);
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string show_value(const Node& value) {
  std::vector<std::string> parts;
  switch (value.kind()) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return value.is_plain() ? value.text() : config::show_text(value.text());
    case Node::Kind::kList:
      for (const Node& item : value.items()) parts.push_back(show_value(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case Node::Kind::kMap:
      for (const auto& [key, item] : value.entries()) {
        parts.push_back(fmt::format("{}: {}", key, show_value(item)));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return "";
}

Dimension::Dimension(std::string path, const std::string& range) : path_(std::move(path)) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError("tune: {}: {}, got '{}'", path_, why, range);
  };
  const auto call = parse_call(range);
  if (!call) fail(fmt::format("expected {}", kForms));
  const auto& arguments = call->arguments;
  if (call->name == "choice") {
    for (const std::string& argument : arguments) {
      if (argument.empty()) fail("expected a value between the commas");
      choices_.push_back(parse_value(argument));
    }
    return;
  }
  if (call->name == "int") {
    kind_ = Kind::kInteger;
    const auto integer = [&](std::size_t i) {
      const auto value = config::parse_int(arguments[i]);
      if (!value) fail("expected integers");
      return *value;
    };
    if (arguments.size() != 2 && arguments.size() != 3) fail("expected int(low, high[, step])");
    first_ = integer(0);
    const std::int64_t last = integer(1);
    if (arguments.size() == 3) step_ = integer(2);
    if (last < first_) fail("expected a low end that is not above the high end");
    if (step_ < 1) fail("expected a positive step");
    if (std::max(std::abs(first_), std::abs(last)) > (std::int64_t{1} << 53)) {
      fail("expected integers of at most 2^53");
    }
    integers_ = (last - first_) / step_ + 1;
    return;
  }
  if (call->name != "uniform" && call->name != "loguniform")
    fail(fmt::format("expected {}", kForms));
  kind_ = call->name == "uniform" ? Kind::kUniform : Kind::kLogUniform;
  if (arguments.size() != 2) fail(fmt::format("expected {}(low, high)", call->name));
  const auto real = [&](std::size_t i) {
    const auto value = config::parse_double(arguments[i]);
    if (!value || !std::isfinite(*value)) fail("expected numbers");
    return *value;
  };
  low_ = real(0);
  high_ = real(1);
  if (!(low_ < high_)) fail("expected a low end below the high end");
  if (kind_ == Kind::kLogUniform && low_ <= 0) fail("expected a low end above 0");
}

Dimension::Dimension(std::string path, std::vector<Node> choices)
    : path_(std::move(path)), choices_(std::move(choices)) {
  if (choices_.empty()) throw ConfigError("tune: {}: expected values to choose from", path_);
}

std::string Dimension::describe() const {
  std::vector<std::string> shown;
  switch (kind_) {
    case Kind::kChoice:
      for (const Node& choice : choices_) shown.push_back(show_value(choice));
      return fmt::format("choice({})", fmt::join(shown, ", "));
    case Kind::kUniform:
    case Kind::kLogUniform:
      return fmt::format("{}({}, {})", kind_ == Kind::kUniform ? "uniform" : "loguniform",
                         config::show_double(low_), config::show_double(high_));
    case Kind::kInteger:
      return fmt::format("int({}, {}, {})", first_, first_ + (integers_ - 1) * step_, step_);
  }
  return "";
}

Node Dimension::at(double fraction) const {
  if (count() > 0) {
    const auto number = static_cast<std::int64_t>(fraction * static_cast<double>(count()));
    return listed(std::min(number, count() - 1));
  }
  const double value = kind_ == Kind::kUniform ? low_ + fraction * (high_ - low_)
                                               : low_ * std::exp(fraction * std::log(high_ / low_));
  // The rounded number may be outside of the range.
  const Node rounded = rounded_number(value);
  const double read = *config::parse_double(rounded.text());
  if (read >= low_ && read <= high_) return rounded;
  return Node::scalar(config::show_double(std::clamp(value, low_, high_)), true);
}

std::int64_t Dimension::count() const {
  return kind_ == Kind::kChoice ? static_cast<std::int64_t>(choices_.size()) : integers_;
}

Node Dimension::listed(std::int64_t number) const {
  if (kind_ == Kind::kChoice) return choices_[static_cast<std::size_t>(number)];
  return Node::scalar(std::to_string(first_ + number * step_), true);
}

void SearchSpace::add(Dimension dimension) {
  const auto found = std::ranges::find(dimensions_, dimension.path(), &Dimension::path);
  if (found != dimensions_.end()) {
    throw ConfigError("tune: {}: expected one range, got two", dimension.path());
  }
  dimensions_.push_back(std::move(dimension));
}

TrialValues SearchSpace::sample(std::uint64_t seed, std::int64_t trial) const {
  TrialValues values;
  for (const Dimension& dimension : dimensions_) {
    // The epoch is added to the seed, so neighbouring seeds must be far apart.
    data::SampleRandom random({.seed = seed * 0x9e3779b97f4a7c15, .epoch = trial},
                              static_cast<std::int64_t>(hash_of(dimension.path())));
    values.emplace_back(dimension.path(), dimension.at(random.uniform()));
  }
  return values;
}

std::int64_t SearchSpace::grid_size() const {
  std::int64_t size = 1;
  for (const Dimension& dimension : dimensions_) {
    if (dimension.count() == 0) {
      throw ConfigError(
          "tune: {}: a grid needs values that can be listed, choice(…) or int(…), got {}; or use "
          "the method random",
          dimension.path(), dimension.describe());
    }
    if (dimension.count() > kLargestGrid / size) {
      throw ConfigError("tune: the grid has more than {} combinations; use the method random",
                        with_thousands(kLargestGrid));
    }
    size *= dimension.count();
  }
  return size;
}

TrialValues SearchSpace::grid_point(std::int64_t number) const {
  TrialValues values;
  for (auto dimension = dimensions_.rbegin(); dimension != dimensions_.rend(); ++dimension) {
    values.emplace_back(dimension->path(), dimension->listed(number % dimension->count()));
    number /= dimension->count();
  }
  std::ranges::reverse(values);
  return values;
}

}  // namespace lockstep::command
