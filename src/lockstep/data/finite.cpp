#include "lockstep/data/finite.h"

#include <cmath>

namespace lockstep::data {

std::optional<NonFinite> find_non_finite(const torch::Tensor& values) {
  if (!values.is_floating_point()) return std::nullopt;
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

}  // namespace lockstep::data
