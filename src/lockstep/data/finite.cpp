#include "lockstep/data/finite.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

void require_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                    const std::string& where) {
  if (!rows.is_floating_point() && !rows.is_complex()) return;
  const torch::Tensor values = rows.is_complex() ? torch::view_as_real(rows) : rows;
  // A finite sum means that all values are finite. A sum that is not may also come from an
  // overflow, so then each row is looked at.
  if (std::isfinite(values.sum(torch::kFloat64).item<double>())) return;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const torch::Tensor row = values[static_cast<std::int64_t>(k)].to(torch::kFloat64).flatten();
    const torch::Tensor places = torch::isfinite(row).logical_not().nonzero();
    if (places.size(0) == 0) continue;
    const auto first = places[0][0].item<std::int64_t>();
    throw DataError(
        "{}: row {}: value {} is {}, and {} of its {} values are not finite; a model cannot learn "
        "from them: repair the data, or set allow_non_finite to take them as they are",
        where, indices[k], first, row[first].item<double>(), with_thousands(places.size(0)),
        with_thousands(row.numel()));
  }
}

}  // namespace lockstep::data
