#include "lockstep/log/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

using Row = std::vector<std::string>;

constexpr std::string_view kStep = "step";

std::string to_line(const Row& cells) {
  std::string line;
  for (const auto& cell : cells) {
    if (&cell != &cells.front()) line += ',';
    line += csv_cell(cell);
  }
  return line + '\n';
}

// A last line without a line end is left out: the process or machine stopped while writing it.
std::vector<Row> parse(std::string_view text) {
  std::vector<Row> rows;
  Row row;
  std::string cell;
  bool in_quotes = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_quotes) {
      if (c != '"') {
        cell += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        cell += text[++i];
      } else {
        in_quotes = false;
      }
    } else if (c == '"') {
      in_quotes = true;
    } else if (c == ',' || c == '\n') {
      row.push_back(std::exchange(cell, {}));
      if (c == '\n') rows.push_back(std::exchange(row, {}));
    } else {
      cell += c;
    }
  }
  return rows;
}

std::string to_cell(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

std::optional<std::int64_t> to_step(const std::string& cell) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), step);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return step;
}

double to_number(const std::string& cell, const std::filesystem::path& path) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) {
    throw Error("{}: expected numbers, got '{}'", path.string(), cell);
  }
  return value;
}

std::vector<Row> read_rows(const std::filesystem::path& path) {
  std::vector<Row> rows = parse(read_file(path));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool right = i == 0 ? rows[0].front() == kStep
                              : rows[i].size() == rows[0].size() && to_step(rows[i].front());
    if (!right) {
      throw Error("{}: line {}: expected {}, got '{}'; move the file away to go on", path.string(),
                  i + 1,
                  i == 0 ? "a header that begins with step"
                         : fmt::format("a step and {} values", rows[0].size() - 1),
                  fmt::join(rows[i], ","));
    }
  }
  return rows;
}

Row with_step(std::vector<std::string> columns) {
  columns.insert(columns.begin(), std::string(kStep));
  return columns;
}

}  // namespace

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

CsvTable::CsvTable(std::filesystem::path path, const CsvTableOptions& options)
    : path_(std::move(path)) {
  if (!options.keep_until || !std::filesystem::exists(path_)) return;
  std::vector<Row> rows = read_rows(path_);
  if (rows.empty()) return;  // not even the header is complete
  const std::vector<std::string> columns(rows.front().begin() + 1, rows.front().end());
  rows.erase(rows.begin());
  std::erase_if(rows, [&](const Row& row) { return *to_step(row.front()) > *options.keep_until; });
  rewrite(columns, rows);
}

void CsvTable::add(std::int64_t step, const Metrics& metrics) {
  std::vector<std::string> columns;
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  std::set_union(columns_.begin(), columns_.end(), names.begin(), names.end(),
                 std::back_inserter(columns));

  if (!begun_ || columns != columns_) {
    // Earlier rows get empty cells for the new columns.
    std::vector<Row> rows;
    if (begun_) rows = read_rows(path_);
    if (!rows.empty()) rows.erase(rows.begin());
    for (Row& row : rows) {
      Row wider = {row.front()};
      for (const auto& column : columns) {
        const auto at = std::find(columns_.begin(), columns_.end(), column);
        wider.push_back(at == columns_.end() ? "" : row[1 + (at - columns_.begin())]);
      }
      row = std::move(wider);
    }
    rewrite(columns, rows);
  }
  append(step, metrics);
}

void CsvTable::sync() {
  if (file_) file_->sync();
}

void CsvTable::append(std::int64_t step, const Metrics& metrics) {
  Row row = {fmt::format("{}", step)};
  for (const auto& column : columns_) {
    const auto found = metrics.find(column);
    row.push_back(found == metrics.end() ? "" : to_cell(found->second));
  }
  if (!file_) file_.emplace(path_, AppendFile::Open::kExisting);
  file_->append(to_line(row));
}

void CsvTable::rewrite(const std::vector<std::string>& columns, const std::vector<Row>& rows) {
  std::string text = to_line(with_step(columns));
  for (const Row& row : rows) text += to_line(row);
  write_file_atomically(path_, text);
  columns_ = columns;
  begun_ = true;
  file_.reset();  // it is the file before
}

std::map<std::int64_t, Metrics> read_csv_table(const std::filesystem::path& path) {
  const std::vector<Row> rows = read_rows(path);
  std::map<std::int64_t, Metrics> table;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    Metrics& metrics = table[*to_step(rows[i].front())];
    for (std::size_t column = 1; column < rows[i].size(); ++column) {
      const std::string& cell = rows[i][column];
      if (!cell.empty()) metrics[rows[0][column]] = to_number(cell, path);
    }
  }
  return table;
}

}  // namespace lockstep
