#include "lockstep/science/statistics.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

std::span<const double> as_span(const torch::Tensor& values) {
  return {values.data_ptr<double>(), static_cast<std::size_t>(values.numel())};
}

// Finite values in ascending order. Values that are sorted already are not sorted again.
torch::Tensor sorted(const torch::Tensor& values) {
  const bool is_ready =
      values.scalar_type() == torch::kFloat64 && values.dim() == 1 && values.is_contiguous() &&
      values.is_cpu() && values.numel() > 0 && std::ranges::is_sorted(as_span(values)) &&
      std::isfinite(as_span(values).front()) && std::isfinite(as_span(values).back());
  return is_ready ? values : finite_values(values);
}

}  // namespace

torch::Tensor finite_values(const torch::Tensor& values) {
  const torch::Tensor flat = values.detach().to(torch::kCPU, torch::kFloat64).flatten();
  torch::Tensor finite = flat.masked_select(torch::isfinite(flat)).contiguous();
  if (finite.numel() == 0) {
    throw DataError("none of {} values is a finite number", flat.numel());
  }
  std::sort(finite.data_ptr<double>(), finite.data_ptr<double>() + finite.numel());
  return finite;
}

Range range_of(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor first = sorted(a), second = sorted(b);
  return {.first = std::min(as_span(first).front(), as_span(second).front()),
          .last = std::max(as_span(first).back(), as_span(second).back())};
}

Histogram histogram(const torch::Tensor& values, const Range& range, std::int64_t bins) {
  if (bins < 1) throw ConfigError("bins: expected a positive integer, got {}", bins);
  // NumPy widens the range in the same way if all values are equal.
  const bool flat = range.first == range.last;
  const double first = flat ? range.first - 0.5 : range.first;
  const double last = flat ? range.last + 0.5 : range.last;
  Histogram histogram;
  const double width = (last - first) / static_cast<double>(bins);
  for (std::int64_t i = 0; i <= bins; ++i) {
    histogram.edge.push_back(i == bins ? last : first + static_cast<double>(i) * width);
  }
  std::vector<double> counts(static_cast<std::size_t>(bins), 0.0);
  double total = 0;
  const torch::Tensor list = sorted(values);
  for (const double value : as_span(list)) {
    if (value < first || value > last) continue;
    auto bin = static_cast<std::int64_t>((value - first) / width);
    bin = std::clamp<std::int64_t>(bin, 0, bins - 1);
    // Because of rounding, `bin` may be one too large or too small.
    if (value < histogram.edge[static_cast<std::size_t>(bin)] && bin > 0) --bin;
    if (bin + 1 < bins && value >= histogram.edge[static_cast<std::size_t>(bin) + 1]) ++bin;
    counts[static_cast<std::size_t>(bin)] += 1;
    total += 1;
  }
  for (const double count : counts) {
    histogram.density.push_back(total > 0 ? count / (total * width) : 0.0);
  }
  return histogram;
}

Cdf cumulative(const torch::Tensor& values, std::int64_t points) {
  const torch::Tensor held = sorted(values);
  const auto list = as_span(held);
  const auto size = static_cast<std::int64_t>(list.size());
  const std::int64_t count = std::min(points, size);
  Cdf cdf;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = count == 1 ? size - 1 : i * (size - 1) / (count - 1);
    const double value = list[static_cast<std::size_t>(at)];
    if (!cdf.value.empty() && cdf.value.back() == value) continue;
    const auto after = std::upper_bound(list.begin() + at, list.end(), value) - list.begin();
    cdf.value.push_back(value);
    cdf.fraction.push_back(static_cast<double>(after) / static_cast<double>(size));
  }
  return cdf;
}

double ks_statistic(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor held_a = sorted(a), held_b = sorted(b);
  const auto first = as_span(held_a), second = as_span(held_b);
  double largest = 0;
  std::size_t i = 0, j = 0;
  while (i < first.size() && j < second.size()) {
    const double value = std::min(first[i], second[j]);
    while (i < first.size() && first[i] == value) ++i;
    while (j < second.size() && second[j] == value) ++j;
    largest =
        std::max(largest, std::abs(static_cast<double>(i) / static_cast<double>(first.size()) -
                                   static_cast<double>(j) / static_cast<double>(second.size())));
  }
  return largest;
}

}  // namespace lockstep::science
