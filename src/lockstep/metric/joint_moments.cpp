#include "lockstep/metric/joint_moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace lockstep::metric {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// As in scikit-learn, so that a relative error is finite if the expected number is 0.
constexpr double kSmallestDivisor = std::numeric_limits<double>::epsilon();

// Pairs of doubles round after about 106 bits. Of numbers that are equal in 13 digits, less than
// this part of their squares remains, and it is taken as 0.
constexpr double kNoise = 0x1p-90;

// The places of the sums.
enum { kP, kY, kPP, kPY, kYY, kAbsolute, kRelative };

constexpr std::size_t kLanes = 8;
// Below this size it is faster to add every number to the exact sums.
constexpr std::size_t kFewNumbers = 4 * kLanes;

// Sums with twice the digits of a double, one per lane. The loops over lanes have no dependencies,
// so the compiler makes vector instructions of them.
struct LaneSums {
  std::array<double, kLanes> high{}, low{};

  // Adds `term`, and `rest`, which is much smaller.
  void add(std::size_t lane, double term, double rest) {
    const double sum = high[lane] + term;
    const double added = sum - high[lane];
    low[lane] += (high[lane] - (sum - added)) + (term - added) + rest;
    high[lane] = sum;
  }

  void add_to(ExactSum& sum) const {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sum.add(high[lane]);
      if (std::isfinite(high[lane])) sum.add(low[lane]);
    }
  }
};

double relative(double error, double expected) {
  return error / std::max(std::abs(expected), kSmallestDivisor);
}

// What a product lost when it was rounded.
template <typename T>
double lost(double a, double b, double product) {
  return std::is_same_v<T, float> ? 0 : std::fma(a, b, -product);
}

// Of one pair of numbers.
template <typename T>
void add_pair(std::array<LaneSums, JointMoments::kSums>& lanes, std::size_t lane, double p,
              double y) {
  const double pp = p * p, py = p * y, yy = y * y, error = std::abs(p - y);
  lanes[kP].add(lane, p, 0);
  lanes[kY].add(lane, y, 0);
  lanes[kPP].add(lane, pp, lost<T>(p, p, pp));
  lanes[kPY].add(lane, py, lost<T>(p, y, py));
  lanes[kYY].add(lane, yy, lost<T>(y, y, yy));
  lanes[kAbsolute].add(lane, error, 0);
  lanes[kRelative].add(lane, relative(error, y), 0);
}

void add_pair(JointMoments::Sums& sums, double p, double y) {
  sums[kP].add(p);
  sums[kY].add(y);
  sums[kPP].add_product(p, p);
  sums[kPY].add_product(p, y);
  sums[kYY].add_product(y, y);
  sums[kAbsolute].add(std::abs(p - y));
  sums[kRelative].add(relative(std::abs(p - y), y));
}

template <typename T>
void add_numbers(std::span<const T> predicted, std::span<const T> expected,
                 JointMoments::Sums& sums) {
  const std::size_t size = expected.size();
  if (size < kFewNumbers) {
    for (std::size_t i = 0; i < size; ++i) add_pair(sums, predicted[i], expected[i]);
    return;
  }
  std::array<LaneSums, JointMoments::kSums> lanes;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      add_pair<T>(lanes, lane, predicted[i + lane], expected[i + lane]);
    }
  }
  for (std::size_t lane = 0; i < size; ++i, ++lane) {
    add_pair<T>(lanes, lane, predicted[i], expected[i]);
  }
  for (std::size_t s = 0; s < sums.size(); ++s) lanes[s].add_to(sums[s]);
}

// Adds factor * sum, for a factor of which products are exact: 1, -1, 2, ...
void add_times(ExactSum& to, double factor, const ExactSum& sum) {
  for (const double term : sum.terms()) to.add(factor * term);
}

// Adds a * b * count, without rounding.
void add_triple(ExactSum& to, double a, double b, double count) {
  const double product = a * b;
  to.add_product(product, count);
  to.add_product(std::fma(a, b, -product), count);
}

// The double nearest to a mean, and what the sum has beyond count * mean.
struct NearMean {
  double mean;
  double rest;
};

NearMean near_mean(const ExactSum& sum, double count) {
  const auto beyond = [&](double mean) {
    ExactSum rest = sum;
    rest.add_product(-mean, count);
    return rest.value();
  };
  // The sum was rounded before the division. Adding what was lost corrects the last bit, so the
  // mean of equal numbers is that number.
  double mean = sum.value() / count;
  mean += beyond(mean) / count;
  return {.mean = mean, .rest = beyond(mean)};
}

}  // namespace

JointMoments::JointMoments(std::int64_t count, std::span<const ExactSum> sums) : count_(count) {
  std::copy_n(sums.begin(), kSums, sums_.begin());
}

void JointMoments::add(std::span<const double> predicted, std::span<const double> expected) {
  count_ += static_cast<std::int64_t>(expected.size());
  add_numbers(predicted, expected, sums_);
}

void JointMoments::add(std::span<const float> predicted, std::span<const float> expected) {
  count_ += static_cast<std::int64_t>(expected.size());
  add_numbers(predicted, expected, sums_);
}

void JointMoments::merge(const JointMoments& other) {
  count_ += other.count_;
  for (std::size_t s = 0; s < kSums; ++s) sums_[s].merge(other.sums_[s]);
}

bool JointMoments::is_finite() const {
  return std::ranges::all_of(sums_, [](const ExactSum& sum) { return std::isfinite(sum.value()); });
}

ExactSum JointMoments::errors() const {
  ExactSum errors = sums_[kP];
  add_times(errors, -1, sums_[kY]);
  return errors;
}

ExactSum JointMoments::squared_errors() const {
  ExactSum squares = sums_[kPP];
  add_times(squares, -2, sums_[kPY]);
  add_times(squares, 1, sums_[kYY]);
  return squares;
}

double JointMoments::centered(const ExactSum& ab, const ExactSum& a, const ExactSum& b) const {
  const auto count = static_cast<double>(count_);
  const NearMean near_a = near_mean(a, count), near_b = near_mean(b, count);
  // sum (a - ma) (b - mb) = sum ab - mb sum a - ma sum b + count ma mb, for any ma and mb.
  ExactSum sum = ab;
  for (const double term : a.terms()) sum.add_product(-near_b.mean, term);
  for (const double term : b.terms()) sum.add_product(-near_a.mean, term);
  add_triple(sum, near_a.mean, near_b.mean, count);
  const double value = sum.value() - near_a.rest * near_b.rest / count;
  return std::abs(value) <= kNoise * std::abs(ab.value()) ? 0 : value;
}

double JointMoments::absolute_error() const {
  return sums_[kAbsolute].value();
}

double JointMoments::relative_error() const {
  return sums_[kRelative].value();
}

double JointMoments::squared_error() const {
  return is_finite() ? squared_errors().value() : kNotANumber;
}

double JointMoments::centered_squared_error() const {
  if (!is_finite()) return kNotANumber;
  const ExactSum errors = this->errors();
  return std::max(0.0, centered(squared_errors(), errors, errors));
}

double JointMoments::predicted_variation() const {
  return is_finite() ? std::max(0.0, centered(sums_[kPP], sums_[kP], sums_[kP])) : kNotANumber;
}

double JointMoments::expected_variation() const {
  return is_finite() ? std::max(0.0, centered(sums_[kYY], sums_[kY], sums_[kY])) : kNotANumber;
}

double JointMoments::covariation() const {
  return is_finite() ? centered(sums_[kPY], sums_[kP], sums_[kY]) : kNotANumber;
}

}  // namespace lockstep::metric
