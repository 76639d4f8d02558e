#include "lockstep/command/torchrun_habits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/config/value.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;

constexpr int kMostNodes = 65536;

// Options of torchrun that are not supported here, by their names with hyphens.
const std::map<std::string, std::string>& not_here() {
  static const std::map<std::string, std::string> options = {
      {"--monitor-interval", "the end of a rank is noticed at once; leave it out"},
      {"--rdzv-conf", "use --timeout SECONDS for the time to wait for other nodes"},
      {"--start-method", "every rank is a separate program; leave it out"},
      {"--run-path", "write the program after the options: python3 script.py"},
      {"--local-addr", "use --rdzv-endpoint host:port, the same on all nodes"},
      {"--logs-specs", "use --log-dir FOLDER, with --redirects and --tee"},
      {"--local-ranks-filter", "use --log-dir FOLDER; each rank has its own files there"},
  };
  return options;
}

std::optional<std::int64_t> parse_count(const std::string& text) {
  const auto number = config::parse_int(text);
  return number && *number >= 1 && *number <= kMostNodes ? number : std::nullopt;
}

// Whether the script is executable and its first line names an interpreter.
bool starts_by_itself(const fs::path& script) {
  std::string first(2, ' ');
  std::ifstream(script).read(first.data(), 2);
  return first == "#!" && ::access(script.c_str(), X_OK) == 0;
}

}  // namespace

std::optional<std::string> instead_of_torchrun_option(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::ranges::replace(name, '_', '-');
  const auto found = not_here().find(name);
  if (found == not_here().end()) return std::nullopt;
  return fmt::format("{}: torchrun's option is not supported here: {}", name, found->second);
}

NodeCount parse_node_count(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto least = parse_count(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : parse_count(text.substr(colon + 1));
  if (!least || !most) {
    throw ConfigError("--nnodes: expected a positive integer, or MIN:MAX, got '{}'", text);
  }
  if (*least > *most) {
    throw ConfigError("--nnodes: expected MIN:MAX with MIN <= MAX, got '{}'", text);
  }
  return {.least = static_cast<int>(*least), .most = static_cast<int>(*most)};
}

std::array<bool, 2> parse_streams(const std::string& option, const std::string& text) {
  const auto streams = config::parse_int(text);
  if (!streams || *streams < 0 || *streams > 3) {
    throw ConfigError(
        "{}: expected 0 (none), 1 (standard output), 2 (standard error) or 3 (both), the same for "
        "all ranks, got '{}'",
        option, text);
  }
  return {(*streams & 1) != 0, (*streams & 2) != 0};
}

void check_is_program(const std::vector<std::string>& command) {
  const std::string& program = command.front();
  if (!program.ends_with(".py") || !fs::exists(program)) return;
  // The system searches a name without a slash in PATH only.
  const bool is_path = program.find('/') != std::string::npos;
  if (is_path && starts_by_itself(program)) return;
  throw ConfigError(
      "{0}: expected a program, got a Python script; write python3 before it: lockstep launch "
      "[OPTIONS] python3 {0} (with --no-python it is started as it is)",
      program);
}

}  // namespace lockstep::command
