#include "lockstep/metric/moments.h"

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Adds weight * value^2, without rounding.
void add_square(ExactSum& sum, double weight, double value) {
  const double square = value * value;
  sum.add_product(weight, square);
  if (std::isfinite(square)) sum.add_product(weight, std::fma(value, value, -square));
}

}  // namespace

void Moments::add(double value, std::int64_t samples) {
  add({.value = value, .weight = static_cast<double>(samples), .samples = samples});
}

void Moments::add(const WeightedValue& weighted) {
  // Written so that NaN is refused, too.
  if (!(weighted.weight >= 0) || std::isinf(weighted.weight) || weighted.samples < 0) {
    throw DataError("weight of a value: expected 0 or more, got {} of {} samples", weighted.weight,
                    weighted.samples);
  }
  if (weighted.weight == 0) return;
  samples_ += weighted.samples;
  weights_.add(weighted.weight);
  sum_.add_product(weighted.weight, weighted.value);
  add_square(sum_squares_, weighted.weight, weighted.value);
}

void Moments::merge(const Moments& other) {
  samples_ += other.samples_;
  weights_.merge(other.weights_);
  sum_.merge(other.sum_);
  sum_squares_.merge(other.sum_squares_);
}

double Moments::mean() const {
  const double weight = weights_.value();
  if (weight == 0) return kUndefined;
  const double mean = sum_.value() / weight;
  if (!std::isfinite(mean)) return mean;
  // The sum was rounded before the division. Adding what was lost corrects the last bit.
  return mean + beyond(mean) / weight;
}

double Moments::beyond(double mean) const {
  ExactSum rest = sum_;
  for (const double term : weights_.terms()) rest.add_product(-mean, term);
  return rest.value();
}

double Moments::std() const {
  const double mean = this->mean();
  if (!std::isfinite(mean)) return kUndefined;
  if (samples_ == 1) return 0;
  // sum w (x - m)^2 = sum w x^2 - 2 m sum w x + m^2 sum w. In doubles, these terms would cancel to
  // noise. If the values are far from zero, the rounding of m matters, too, so its square is
  // subtracted.
  const double weight = weights_.value();
  const auto samples = static_cast<double>(samples_);
  ExactSum squares = sum_squares_;
  for (const double term : sum_.terms()) squares.add_product(-2 * mean, term);
  for (const double term : weights_.terms()) add_square(squares, term, mean);
  const double rest = beyond(mean);
  const double deviation = squares.value() - rest * rest / weight;
  if (deviation < 0) return 0;
  // If every sample has weight 1, the two factors cancel and no rounding is needed.
  const double per_sample = weight == samples ? 1.0 : samples / weight;
  return std::sqrt(deviation * per_sample / (samples - 1));
}

StateDict Moments::state() const {
  return {{"weight", samples_},
          {"weights", saved_sum(weights_)},
          {"sum", saved_sum(sum_)},
          {"sum_squares", saved_sum(sum_squares_)}};
}

Moments Moments::from_state(const StateDict& state) {
  Moments moments;
  moments.samples_ = state.get<std::int64_t>("weight");
  // Checkpoints of version 0.1.0 have only means over samples.
  if (state.contains("weights")) {
    moments.weights_ = read_sum(state, "weights");
  } else {
    moments.weights_.add(static_cast<double>(moments.samples_));
  }
  moments.sum_ = read_sum(state, "sum");
  moments.sum_squares_ = read_sum(state, "sum_squares");
  return moments;
}

}  // namespace lockstep::metric
