// A sum of doubles without rounding, so that it does not depend on the order of its terms: merging
// the sums of several ranks gives the same bits as one process would have computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::metric {

// One fixed-point number that is wide enough for every double. It has digits of 32 bits, each in a
// signed word of 64 bits. The remaining bits hold the carries of 2^30 terms, and words are merged
// by plain addition.
class ExactSum {
 public:
  static constexpr std::size_t kDigits = 66;
  // The digits, then the numbers of NaN, +inf and -inf that were added.
  static constexpr std::size_t kWords = kDigits + 3;
  using Words = std::array<std::int64_t, kWords>;

  ExactSum() = default;
  explicit ExactSum(const Words& words) : words_(words) {}

  void add(double term);

  // Adds the exact product a * b, without rounding it (if it neither overflows nor underflows).
  void add_product(double a, double b);

  void merge(const ExactSum& other);

  // The double nearest to the sum, ties to even. Infinite or NaN if a term was.
  double value() const;

  // A few doubles whose exact sum is this sum, largest first; empty for zero. The sum must be
  // finite.
  std::vector<double> terms() const;

  const Words& words() const { return words_; }

 private:
  Words words_{};
};

}  // namespace lockstep::metric
