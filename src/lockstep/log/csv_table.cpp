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
#include "lockstep/base/warn.h"

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

// How a line is treated that is no row of this table.
enum class Unreadable { kError, kLeaveOut };

std::vector<Row> read_rows(const std::filesystem::path& path,
                           Unreadable unreadable = Unreadable::kError) {
  std::vector<Row> rows;
  std::size_t line = 0;
  for (Row& row : parse(read_file(path))) {
    line += 1;
    const bool right = rows.empty()
                           ? row.front() == kStep
                           : row.size() == rows[0].size() && to_step(row.front()).has_value();
    if (right) {
      rows.push_back(std::move(row));
    } else if (!rows.empty() && unreadable == Unreadable::kLeaveOut) {
      warn(
          fmt::format("{}: line {} is damaged and is left out; the metrics of finished epochs are "
                      "written again from the checkpoint",
                      path.string(), line));
    } else {
      throw Error("{}: line {}: expected {}, got '{}'; move the file away to go on", path.string(),
                  line,
                  rows.empty() ? "a header that begins with step"
                               : fmt::format("a step and {} values", rows[0].size() - 1),
                  fmt::join(row, ","));
    }
  }
  return rows;
}

std::vector<std::string> with_names(const std::vector<std::string>& columns,
                                    const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  std::vector<std::string> all;
  std::set_union(columns.begin(), columns.end(), names.begin(), names.end(),
                 std::back_inserter(all));
  return all;
}

// Gives rows with the columns `from` the columns `to`, which include them.
void widen(std::vector<Row>& rows, const std::vector<std::string>& from,
           const std::vector<std::string>& to) {
  if (from == to) return;
  for (Row& row : rows) {
    Row wider = {row.front()};
    for (const auto& column : to) {
      const auto at = std::ranges::find(from, column);
      wider.push_back(at == from.end() ? "" : row[1 + (at - from.begin())]);
    }
    row = std::move(wider);
  }
}

Row to_row(std::int64_t step, const Metrics& metrics, const std::vector<std::string>& columns) {
  Row row = {fmt::format("{}", step)};
  for (const auto& column : columns) {
    const auto found = metrics.find(column);
    row.push_back(found == metrics.end() ? "" : to_cell(found->second));
  }
  return row;
}

bool has_same_cells(const Row& row, const Row& other) {
  return std::ranges::equal(row, other, {}, &std::string::empty, &std::string::empty);
}

// A row of the same step and the same metrics, but with other values, is damaged. A row of the same
// step with other metrics is one that a callback has logged.
void put(std::vector<Row>& rows, Row row) {
  if (std::ranges::find(rows, row) != rows.end()) return;
  const auto damaged = std::ranges::find_if(rows, [&](const Row& other) {
    return other.front() == row.front() && has_same_cells(other, row);
  });
  if (damaged != rows.end()) {
    *damaged = std::move(row);
    return;
  }
  const auto next = std::ranges::find_if(
      rows, [&](const Row& other) { return *to_step(other.front()) > *to_step(row.front()); });
  rows.insert(next, std::move(row));
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
  if (!options.keep_until) return;
  std::vector<Row> rows;
  if (std::filesystem::exists(path_)) {
    rows = read_rows(path_, options.rows.empty() ? Unreadable::kError : Unreadable::kLeaveOut);
  }
  if (rows.empty() && options.rows.empty()) return;  // not even the header is complete
  std::vector<std::string> columns;
  if (!rows.empty()) {
    columns.assign(rows.front().begin() + 1, rows.front().end());
    rows.erase(rows.begin());
  }
  std::erase_if(rows, [&](const Row& row) { return *to_step(row.front()) > *options.keep_until; });
  std::vector<std::string> all = columns;
  for (const auto& [step, metrics] : options.rows) all = with_names(all, metrics);
  widen(rows, columns, all);
  for (const auto& [step, metrics] : options.rows) put(rows, to_row(step, metrics, all));
  rewrite(all, rows);
}

void CsvTable::add(std::int64_t step, const Metrics& metrics) {
  const std::vector<std::string> columns = with_names(columns_, metrics);
  if (!begun_ || columns != columns_) {
    // Earlier rows get empty cells for the new columns.
    std::vector<Row> rows;
    if (begun_) rows = read_rows(path_);
    if (!rows.empty()) rows.erase(rows.begin());
    widen(rows, columns_, columns);
    rewrite(columns, rows);
  }
  if (!file_) file_.emplace(path_, AppendFile::Open::kExisting);
  file_->append(to_line(to_row(step, metrics, columns_)));
}

void CsvTable::sync() {
  if (file_) file_->sync();
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
