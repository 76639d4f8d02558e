// Tables as CSV.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::science {

using CsvColumn = std::pair<std::string, std::vector<double>>;

// One line of names, then one line per row. Cells past the end of a shorter column are empty.
std::string to_csv(const std::vector<CsvColumn>& columns);

}  // namespace lockstep::science
