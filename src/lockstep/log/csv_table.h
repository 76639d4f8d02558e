// One CSV file: a row a step, a column a metric, and columns may appear late.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/metrics.h"
#include "lockstep/log/append_file.h"

namespace lockstep {

// RFC 4180: quoted where a separator is inside, quotes doubled.
std::string csv_cell(const std::string& text);

struct CsvTableOptions {
  // Goes on with the file that is there, without its rows of later steps. Without it the first row
  // begins the file anew.
  std::optional<std::int64_t> keep_until = {};
};

// Numbers are written in full: they read back to the same bits. A metric that a row does not have
// is an empty cell. A killed process leaves the file
// whole but for its last line at worst, and a resumed run drops that.
class CsvTable {
 public:
  // Throws Error where a file to go on with is not one of ours.
  explicit CsvTable(std::filesystem::path path, const CsvTableOptions& options = {});

  void add(std::int64_t step, const Metrics& metrics);

  // Returns when all rows are on the disk.
  void sync();

 private:
  using Row = std::vector<std::string>;

  std::vector<Row> read_rows() const;
  void append(std::int64_t step, const Metrics& metrics);
  void rewrite(const std::vector<std::string>& columns, const std::vector<Row>& rows);

  std::filesystem::path path_;
  std::vector<std::string> columns_;  // sorted, without "step"
  std::optional<AppendFile> file_;    // none before the first row of a new file
};

}  // namespace lockstep
