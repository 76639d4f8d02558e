// One CSV file with one row per step and one column per metric. Later rows may add columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/metrics.h"
#include "lockstep/log/append_file.h"

namespace lockstep {

// A cell as RFC 4180 defines it: text with a separator in it is quoted, and its quotes are doubled.
std::string csv_cell(const std::string& text);

struct CsvTableOptions {
  // Continues the existing file, without its rows of later steps. If this is not set, the first row
  // replaces the file.
  std::optional<std::int64_t> keep_until = {};
  // With keep_until: the rows that the file must have. Rows that it lacks, or that have other
  // values there, are written again. Lines that cannot be read are left out with a warning.
  std::map<std::int64_t, Metrics> rows = {};
};

// Numbers are written with all digits, so they read back to the same bits. A metric that a row does
// not have is an empty cell. If the process is killed, at most the last line of the file is
// incomplete, and a resumed run drops that line.
class CsvTable {
 public:
  // Throws Error if the file to continue was not written by this class: its header does not begin
  // with "step", or a line cannot be read and no `rows` are given.
  explicit CsvTable(std::filesystem::path path, const CsvTableOptions& options = {});

  void add(std::int64_t step, const Metrics& metrics);

  // Returns when all rows are on the disk.
  void sync();

 private:
  using Row = std::vector<std::string>;

  void rewrite(const std::vector<std::string>& columns, const std::vector<Row>& rows);

  std::filesystem::path path_;
  std::vector<std::string> columns_;  // sorted, without "step"
  bool begun_ = false;                // the file is this table's
  std::optional<AppendFile> file_;    // opened for the next row
};

// The rows of a file that a CsvTable wrote, by step, without empty cells. Throws Error if another
// program wrote it.
std::map<std::int64_t, Metrics> read_csv_table(const std::filesystem::path& path);

}  // namespace lockstep
