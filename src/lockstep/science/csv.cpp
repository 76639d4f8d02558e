#include "lockstep/science/csv.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/log/csv_table.h"

namespace lockstep::science {

std::string to_csv(const std::vector<CsvColumn>& columns) {
  std::string csv;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) csv += ',';
    csv += csv_cell(columns[i].first);
    rows = std::max(rows, columns[i].second.size());
  }
  csv += '\n';
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) csv += ',';
      if (row < columns[i].second.size()) csv += fmt::format("{}", columns[i].second[row]);
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace lockstep::science
