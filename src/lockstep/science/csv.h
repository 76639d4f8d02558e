// Tables as CSV.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::science {

using CsvColumn = std::pair<std::string, std::vector<double>>;

// A line of names, then a line a row; shorter columns end earlier.
std::string to_csv(const std::vector<CsvColumn>& columns);

}  // namespace lockstep::science
