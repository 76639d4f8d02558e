#include "lockstep/metric/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// weight * value^2, without rounding.
void add_square(ExactSum& sum, double weight, double value) {
  const double square = value * value;
  sum.add_product(weight, square);
  if (std::isfinite(square)) sum.add_product(weight, std::fma(value, value, -square));
}

torch::Tensor to_tensor(const ExactSum& sum) {
  return tensor_of<std::int64_t>(sum.words(), {ExactSum::kWords});
}

ExactSum to_sum(const StateDict& state, std::string_view key) {
  const auto saved = saved_values<std::int64_t>(state, key, {ExactSum::kWords});
  ExactSum::Words words{};
  std::copy(saved.begin(), saved.end(), words.begin());
  return ExactSum(words);
}

}  // namespace

void Moments::add(double value, std::int64_t weight) {
  if (weight < 0) throw DataError("weight of a value: expected 0 or more samples, got {}", weight);
  if (weight == 0) return;
  const auto samples = static_cast<double>(weight);
  weight_ += weight;
  sum_.add_product(samples, value);
  add_square(sum_squares_, samples, value);
}

void Moments::merge(const Moments& other) {
  weight_ += other.weight_;
  sum_.merge(other.sum_);
  sum_squares_.merge(other.sum_squares_);
}

double Moments::mean() const {
  if (weight_ == 0) return kUndefined;
  const auto samples = static_cast<double>(weight_);
  const double mean = sum_.value() / samples;
  if (!std::isfinite(mean)) return mean;
  // The sum was rounded before the division; what that lost moves the last bit where it must be.
  return mean + beyond(mean) / samples;
}

double Moments::beyond(double mean) const {
  ExactSum rest = sum_;
  rest.add_product(-mean, static_cast<double>(weight_));
  return rest.value();
}

double Moments::std() const {
  const double mean = this->mean();
  if (!std::isfinite(mean)) return kUndefined;
  if (weight_ == 1) return 0;
  // sum w (x - m)^2 = sum w x^2 - 2 m sum w x + m^2 sum w, where doubles would cancel to noise. Far
  // from zero the rounding of m shows, too: its square goes off again.
  const auto samples = static_cast<double>(weight_);
  ExactSum squares = sum_squares_;
  for (const double term : sum_.terms()) squares.add_product(-2 * mean, term);
  add_square(squares, samples, mean);
  const double rest = beyond(mean);
  const double deviation = squares.value() - rest * rest / samples;
  return deviation < 0 ? 0 : std::sqrt(deviation / (samples - 1));
}

StateDict Moments::state() const {
  return {{"weight", weight_}, {"sum", to_tensor(sum_)}, {"sum_squares", to_tensor(sum_squares_)}};
}

Moments Moments::from_state(const StateDict& state) {
  Moments moments;
  moments.weight_ = state.get<std::int64_t>("weight");
  moments.sum_ = to_sum(state, "sum");
  moments.sum_squares_ = to_sum(state, "sum_squares");
  return moments;
}

}  // namespace lockstep::metric
