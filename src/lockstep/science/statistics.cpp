#include "lockstep/science/statistics.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

std::vector<double> sorted(const torch::Tensor& values) {
  const torch::Tensor flat =
      values.detach().to(torch::kCPU, torch::kFloat64).flatten().contiguous();
  std::vector<double> list(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  if (list.empty()) throw DataError("there are no values to be distributed");
  if (std::ranges::any_of(list, [](double x) { return std::isnan(x); })) {
    throw DataError("a value that is not a number has no place in a distribution");
  }
  std::ranges::sort(list);
  return list;
}

}  // namespace

Range range_of(const torch::Tensor& a, const torch::Tensor& b) {
  return {.first = std::min(a.min().item<double>(), b.min().item<double>()),
          .last = std::max(a.max().item<double>(), b.max().item<double>())};
}

Histogram histogram(const torch::Tensor& values, const Range& range, std::int64_t bins) {
  if (bins < 1) throw ConfigError("bins: expected a positive integer, got {}", bins);
  // As NumPy does where all values are the same.
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
  for (const double value : sorted(values)) {
    if (value < first || value > last) continue;
    auto bin = static_cast<std::int64_t>((value - first) / width);
    bin = std::clamp<std::int64_t>(bin, 0, bins - 1);
    // Rounding may have put it beside its bin.
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
  const auto list = sorted(values);
  const auto size = static_cast<std::int64_t>(list.size());
  const std::int64_t count = std::min(points, size);
  Cdf cdf;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = count == 1 ? size - 1 : i * (size - 1) / (count - 1);
    cdf.value.push_back(list[static_cast<std::size_t>(at)]);
    cdf.fraction.push_back(static_cast<double>(at + 1) / static_cast<double>(size));
  }
  return cdf;
}

double ks_statistic(const torch::Tensor& a, const torch::Tensor& b) {
  const auto first = sorted(a), second = sorted(b);
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
