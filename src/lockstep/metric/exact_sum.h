// A sum of doubles without rounding, so that it does not depend on the order of its terms: what
// ranks added apart merges into the bits that one process would have had.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::metric {

// One fixed-point number wide enough for every double, in digits of 32 bits, each in a signed word
// of 64: the headroom takes the carries of 2^30 terms, and words merge by plain addition.
class ExactSum {
 public:
  static constexpr std::size_t kDigits = 66;
  // The digits, then how many NaN, +inf and -inf were added.
  static constexpr std::size_t kWords = kDigits + 3;
  using Words = std::array<std::int64_t, kWords>;

  ExactSum() = default;
  explicit ExactSum(const Words& words) : words_(words) {}

  void add(double term);

  // Adds a * b, not the product's rounding (as long as that neither over- nor underflows).
  void add_product(double a, double b);

  void merge(const ExactSum& other);

  // The double nearest to the sum, ties to even. Infinite or NaN where a term was.
  double value() const;

  // Few doubles that together are the sum, largest first; empty for zero. The sum is finite.
  std::vector<double> terms() const;

  const Words& words() const { return words_; }

 private:
  Words words_{};
};

}  // namespace lockstep::metric
