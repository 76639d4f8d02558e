#include "lockstep/metric/roc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace lockstep::metric {
namespace {

using SortKeys = std::vector<std::uint32_t>;

// Unsigned integers with the same order as the floats; -0 equals +0.
std::uint32_t to_key(float score) {
  constexpr std::uint32_t kSign = 0x80000000;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  return bits & kSign ? ~bits : bits | kSign;
}

// Three passes of 11 bits each: several times faster than std::sort for more than a few hundred
// keys.
void radix_sort(SortKeys& keys) {
  constexpr int kBits = 11;
  constexpr std::size_t kBuckets = 1u << kBits;
  SortKeys other(keys.size());
  for (int shift = 0; shift < 32; shift += kBits) {
    const auto bucket = [shift](std::uint32_t key) { return key >> shift & (kBuckets - 1); };
    std::array<std::uint32_t, kBuckets> place{};
    for (const std::uint32_t key : keys) ++place[bucket(key)];
    std::uint32_t start = 0;
    for (std::uint32_t& count : place) start += std::exchange(count, start);
    for (const std::uint32_t key : keys) other[place[bucket(key)]++] = key;
    keys.swap(other);
  }
}

SortKeys sorted_keys(const std::vector<float>& scores) {
  constexpr std::size_t kWorthRadix = 512;
  SortKeys keys(scores.size());
  std::ranges::transform(scores, keys.begin(), to_key);
  if (keys.size() < kWorthRadix) {
    std::ranges::sort(keys);
  } else {
    radix_sort(keys);
  }
  return keys;
}

}  // namespace

double roc_area(const std::vector<float>& positives, const std::vector<float>& negatives) {
  if (positives.empty() || negatives.empty()) return std::numeric_limits<double>::quiet_NaN();
  const SortKeys above = sorted_keys(positives);
  const SortKeys below = sorted_keys(negatives);
  std::uint64_t twice = 0;  // twice the number of pairs won: a win counts 2, a tie 1
  std::size_t lower = 0, not_higher = 0;
  for (const std::uint32_t key : above) {
    while (lower < below.size() && below[lower] < key) ++lower;
    while (not_higher < below.size() && below[not_higher] <= key) ++not_higher;
    twice += lower + not_higher;
  }
  const double pairs = static_cast<double>(above.size()) * static_cast<double>(below.size());
  return static_cast<double>(twice) / (2 * pairs);
}

}  // namespace lockstep::metric
