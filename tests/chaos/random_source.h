// Random numbers that are the same on every machine for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

namespace lockstep::chaos {

// The seed of fault number `index` of a run with the seed `seed` (SplitMix64).
inline std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t value = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}

  // From 0 to count - 1. The standard's distributions are not used, because each library has its
  // own.
  std::size_t below(std::size_t count) {
    if (count == 0) throw std::invalid_argument("below(0): expected a positive number");
    return static_cast<std::size_t>(engine_() % count);
  }

  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1.0p-53;
  }

  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values.at(below(values.size()));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace lockstep::chaos
