// The sums of predicted and expected numbers from which all metrics of regression follow.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/metric/exact_sum.h"

namespace lockstep::metric {

// Sums of p, y, p^2, p y, y^2, |p - y| and |p - y| / |y| over pairs of a predicted number p and an
// expected number y.
//
// Usually such sums are of no use: of numbers far from zero, y^2 - mean^2 cancels to noise. Here
// they are exact (ExactSum), and the differences are computed before the result is rounded, so
// nothing cancels, and ranks merge by integer addition. To be fast, the numbers of a large sample
// are first added to pairs of doubles, which have twice the digits of a double, always in the same
// order. So the result does not depend on how samples are divided into batches and ranks.
class JointMoments {
 public:
  // Adds the numbers of one sample.
  void add(std::span<const double> predicted, std::span<const double> expected);
  // The same for numbers whose products are exact in float64: those of float32 and narrower types.
  void add(std::span<const float> predicted, std::span<const float> expected);

  void merge(const JointMoments& other);

  std::int64_t count() const { return count_; }

  // Sums of (p - y)^2, (p - y - mean)^2, and of |p - y|, |p - y| / |y|. NaN if a number was not
  // finite.
  double squared_error() const;
  double centered_squared_error() const;
  double absolute_error() const;
  double relative_error() const;
  // Sums of (p - mean)^2, (y - mean)^2 and of their product.
  double predicted_variation() const;
  double expected_variation() const;
  double covariation() const;

  // For a checkpoint and for merging.
  static constexpr std::size_t kSums = 7;
  using Sums = std::array<ExactSum, kSums>;
  const Sums& sums() const { return sums_; }
  JointMoments() = default;
  JointMoments(std::int64_t count, std::span<const ExactSum> sums);

 private:
  bool is_finite() const;
  ExactSum errors() const;          // of p - y
  ExactSum squared_errors() const;  // of (p - y)^2
  // The sum of (a - mean a) (b - mean b), from the sums of a b, a and b.
  double centered(const ExactSum& ab, const ExactSum& a, const ExactSum& b) const;

  std::int64_t count_ = 0;
  Sums sums_;
};

}  // namespace lockstep::metric
