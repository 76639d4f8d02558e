#include "lockstep/data/finite.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

std::optional<NonFinite> find_non_finite(const torch::Tensor& numbers) {
  if (!numbers.is_floating_point() && !numbers.is_complex()) return std::nullopt;
  const torch::Tensor values = numbers.is_complex() ? torch::view_as_real(numbers) : numbers;
  // A finite sum means that all values are finite. A sum that is not may also come from an
  // overflow, so then each value is checked.
  if (std::isfinite(values.sum(torch::kFloat64).item<double>())) return std::nullopt;
  const torch::Tensor places = torch::isfinite(values).logical_not().nonzero();
  if (places.size(0) == 0) return std::nullopt;
  NonFinite found{.count = places.size(0), .index = {}, .value = 0};
  torch::Tensor first = values;
  for (std::int64_t i = 0; i < values.dim(); ++i) {
    found.index.push_back(places[0][i].item<std::int64_t>());
    first = first[found.index.back()];
  }
  found.value = first.item<double>();
  return found;
}

void require_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                    const std::string& where) {
  const auto first = find_non_finite(rows);
  if (!first) return;
  const std::int64_t k = first->index.front();
  const torch::Tensor row = rows[k].flatten();
  const auto found = find_non_finite(row);
  throw DataError(
      "{}: row {}: value {} is {}, and {} of its {} values are not finite; a model cannot learn "
      "from them: repair the data, or set allow_non_finite to take them as they are",
      where, indices[static_cast<std::size_t>(k)], found->index.front(), found->value,
      with_thousands(found->count), with_thousands(row.numel()));
}

}  // namespace lockstep::data
