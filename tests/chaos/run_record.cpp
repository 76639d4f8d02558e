#include "tests/chaos/run_record.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "tests/log/event_reader.h"

namespace lockstep::chaos {
namespace fs = std::filesystem;
namespace {

using Cells = std::vector<std::string>;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Cells as they are written, with their quotes.
Cells cells_of(std::string_view line) {
  Cells cells(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') quoted = !quoted;
    if (letter == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += letter;
    }
  }
  return cells;
}

bool is_time(const std::string& column) {
  return column.starts_with("_timer/") || column.starts_with("\"_timer/");
}

// The values of a tag, as TensorBoard would show them after it has read `folder`: a restart drops
// what was there from its step on.
void add_scalars(const fs::path& folder, std::map<std::string, std::string>& all) {
  std::map<std::pair<std::string, std::int64_t>, float> values;
  for (const fs::path& file : reader::event_files(folder)) {
    for (const reader::Message& event : reader::read_events(file, reader::TornEnd::kSkip)) {
      const std::int64_t step = event.has(2) ? event.integer(2) : 0;
      if (event.has(7)) {  // session_log
        std::erase_if(values, [&](const auto& entry) { return entry.first.second >= step; });
      }
      if (!event.has(5)) continue;  // summary
      for (const reader::Message& value : event.message(5).messages(1)) {
        if (!value.has(2)) continue;  // no scalar
        const std::string tag = value.text(1);
        if (is_time(tag)) continue;
        if (!values.emplace(std::pair(tag, step), value.float32(2)).second) {
          throw std::runtime_error(
              fmt::format("{}: '{}' is there twice for step {}", file.string(), tag, step));
        }
      }
    }
  }
  for (const auto& [key, value] : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    all[fmt::format("{} {} at step {}", folder.filename().string(), key.first, key.second)] =
        fmt::format("{} (0x{:08x})", value, bits);
  }
}

nlohmann::json without_path(nlohmann::json epoch) {
  if (epoch.is_object()) epoch.erase("checkpoint");
  return epoch;
}

// "2026-01-31T12:00:00.123Z"
std::chrono::system_clock::time_point parse_time(const std::string& text) {
  std::tm parts{};
  int milliseconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d.%dZ", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec,
                  &milliseconds) != 7) {
    throw std::runtime_error(
        fmt::format("recoveries.jsonl: '{}': expected a time like 2026-01-31T12:00:00.123Z", text));
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) +
         std::chrono::milliseconds(milliseconds);
}

std::optional<std::string> difference(const std::map<std::string, std::string>& expected,
                                      const std::map<std::string, std::string>& found,
                                      std::string_view what) {
  for (const auto& [name, text] : expected) {
    const auto other = found.find(name);
    if (other == found.end()) return fmt::format("{} {} is missing", what, name);
    if (other->second == text) continue;
    const auto wanted = lines_of(text);
    const auto got = lines_of(other->second);
    for (std::size_t i = 0; i < std::max(wanted.size(), got.size()); ++i) {
      const std::string left = i < wanted.size() ? wanted[i] : "no line";
      const std::string right = i < got.size() ? got[i] : "no line";
      if (left == right) continue;
      return fmt::format("{} {}, line {}: expected\n  {}\ngot\n  {}", what, name, i + 1, left,
                         right);
    }
    return fmt::format("{} {}: the end of the last line differs", what, name);
  }
  for (const auto& [name, text] : found) {
    if (!expected.contains(name)) return fmt::format("{} {} is not expected", what, name);
  }
  return std::nullopt;
}

}  // namespace

RunRecord read_run(const fs::path& folder) {
  RunRecord record;
  if (fs::exists(folder / "summary.json")) {
    const auto summary = nlohmann::json::parse(read_file(folder / "summary.json"));
    record.weights_hash = summary.at("weights_hash").get<std::string>();
    record.results = nlohmann::json{{"best", without_path(summary.at("best"))},
                                    {"last", without_path(summary.at("last"))}}
                         .dump();
  }
  if (fs::is_directory(folder / "logs")) {
    for (const auto& entry : fs::directory_iterator(folder / "logs")) {
      if (entry.path().extension() != ".csv") continue;
      record.tables[entry.path().filename().string()] = without_times(read_file(entry.path()));
    }
  }
  if (fs::is_directory(folder / "tensorboard")) {
    for (const auto& entry : fs::directory_iterator(folder / "tensorboard")) {
      if (entry.is_directory()) add_scalars(entry.path(), record.scalars);
    }
  }
  return record;
}

std::optional<std::string> difference(const RunRecord& expected, const RunRecord& found) {
  if (found.weights_hash != expected.weights_hash) {
    return fmt::format("the weights have the hash '{}', expected {}", found.weights_hash,
                       expected.weights_hash);
  }
  if (const auto text = difference(expected.tables, found.tables, "logs")) return text;
  if (found.results != expected.results) {
    return fmt::format("summary.json: expected\n  {}\ngot\n  {}", expected.results, found.results);
  }
  return difference(expected.scalars, found.scalars, "TensorBoard");
}

std::string without_times(std::string_view csv) {
  const auto lines = lines_of(csv);
  if (lines.empty()) return "";
  const Cells columns = cells_of(lines.front());
  if (std::ranges::none_of(columns, is_time)) return std::string(csv);
  std::string text;
  for (const std::string& line : lines) {
    const Cells cells = cells_of(line);
    bool first = true;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i < columns.size() && is_time(columns[i])) continue;
      if (!first) text += ',';
      text += cells[i];
      first = false;
    }
    text += '\n';
  }
  return text;
}

int finished_epochs(const fs::path& folder) {
  const fs::path path = folder / "logs/_epoch_.csv";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return 0;
  try {
    const std::string text = read_file(path);
    return std::max<int>(0, static_cast<int>(std::ranges::count(text, '\n')) - 1);
  } catch (const std::exception&) {
    return 0;  // the run has just moved it away
  }
}

std::vector<RecoveryLine> read_recoveries(const fs::path& folder) {
  const fs::path path = folder / "recoveries.jsonl";
  std::vector<RecoveryLine> recoveries;
  if (!fs::exists(path)) return recoveries;
  const std::string text = read_file(path);
  const std::size_t complete = text.rfind('\n') + 1;  // 0 if there is no whole line
  for (const std::string& line : lines_of(std::string_view(text).substr(0, complete))) {
    const auto json = nlohmann::json::parse(line);
    recoveries.push_back({.noticed = parse_time(json.at("time").get<std::string>()),
                          .seconds = json.at("seconds").get<double>()});
  }
  return recoveries;
}

std::vector<fs::path> abandoned_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp.") != std::string::npos || name == ".lock") files.push_back(entry.path());
  }
  return files;
}

}  // namespace lockstep::chaos
