#include "lockstep/log/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep {
namespace {

const std::vector<double>& bucket_edges() {
  static const std::vector<double> edges = [] {
    std::vector<double> positive;
    for (double edge = 1e-12; edge < 1e20; edge *= 1.1) positive.push_back(edge);
    std::vector<double> all;
    for (auto edge = positive.rbegin(); edge != positive.rend(); ++edge) all.push_back(-*edge);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return edges;
}

// Adds a value to its bucket: edges[i] <= value < edges[i + 1]; the last one includes its end.
void count(double value, std::vector<double>& counts) {
  const std::vector<double>& edges = bucket_edges();
  if (value < edges.front() || value > edges.back()) return;
  const auto above = std::ranges::upper_bound(edges, value) - edges.begin();
  counts[std::min(static_cast<std::size_t>(above) - 1, counts.size() - 1)] += 1;
}

// Keeps the buckets from the first to the last that have values, and an empty one before them,
// whose limit is where the first begins.
void keep_used(const std::vector<double>& counts, Histogram& histogram) {
  const auto is_used = [](double number) { return number > 0; };
  const auto first = std::ranges::find_if(counts, is_used);
  if (first == counts.end()) return;
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_used).base();
  const std::vector<double>& edges = bucket_edges();
  histogram.buckets.push_back(0);
  histogram.buckets.insert(histogram.buckets.end(), first, end);
  histogram.bucket_limits.assign(edges.begin() + (first - counts.begin()),
                                 edges.begin() + (end - counts.begin()) + 1);
}

template <typename T>
std::optional<Histogram> histogram_of(std::span<const T> values) {
  Histogram histogram;
  std::vector<double> counts(bucket_edges().size() - 1, 0.0);
  for (const T given : values) {
    if (!std::isfinite(given)) continue;
    const auto value = static_cast<double>(given);
    histogram.min = histogram.num == 0 ? value : std::min(histogram.min, value);
    histogram.max = histogram.num == 0 ? value : std::max(histogram.max, value);
    histogram.num += 1;
    histogram.sum += value;
    histogram.sum_squares += value * value;
    count(value, counts);
  }
  if (histogram.num == 0) return std::nullopt;
  keep_used(counts, histogram);
  return histogram;
}

}  // namespace

std::optional<Histogram> make_histogram(std::span<const float> values) {
  return histogram_of(values);
}

std::optional<Histogram> make_histogram(std::span<const double> values) {
  return histogram_of(values);
}

}  // namespace lockstep
