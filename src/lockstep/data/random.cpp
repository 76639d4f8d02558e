#include "lockstep/data/random.h"

#include <cmath>
#include <numbers>

#include <ATen/CPUGeneratorImpl.h>

namespace lockstep::data {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

// The output function of splitmix64: every bit of the input reaches every bit of the output.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

SampleRandom::SampleRandom(const EpochKey& key, std::int64_t sample)
    : state_(mix(key.seed + kStep)) {
  for (const std::int64_t part : {key.epoch, sample}) {
    state_ = mix((state_ ^ static_cast<std::uint64_t>(part)) + kStep);
  }
}

std::uint64_t SampleRandom::bits() {
  state_ += kStep;
  return mix(state_);
}

double SampleRandom::uniform() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

double SampleRandom::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

std::int64_t SampleRandom::below(std::int64_t bound) {
  // The high half of the product. With bounds below 2^32 the error of a probability is below 2^-32.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Wide>(bits()) * static_cast<Wide>(bound)) >> 64);
}

bool SampleRandom::chance(double probability) {
  return uniform() < probability;
}

double SampleRandom::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang (2000). A shape below 1 is raised by 1 and corrected by a power of a uniform
// number.
double SampleRandom::gamma(double shape) {
  if (shape < 1) {
    const double raised = gamma(shape + 1);
    return raised * std::pow(1 - uniform(), 1 / shape);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double SampleRandom::beta(double a, double b) {
  const double x = gamma(a);
  const double y = gamma(b);
  // Both may be too small for a double, if a and b are.
  return x + y > 0 ? x / (x + y) : (chance(a / (a + b)) ? 1 : 0);
}

at::Generator SampleRandom::generator() {
  return at::detail::createCPUGenerator(bits());
}

}  // namespace lockstep::data
