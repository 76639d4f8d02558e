// The random numbers of one sample. They are a function of (seed, epoch, sample), so a batch does
// not depend on the number of threads and workers, on prefetch or on a cache, and a resumed run
// draws the same numbers.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>

namespace lockstep::data {

// Everything that the order of an epoch, and the random numbers of its samples, depend on.
struct EpochKey {
  std::uint64_t seed = 42;  // of the run; a seed in LoaderOptions is used instead
  std::int64_t epoch = 1;   // added to the seed
};

// A small generator (splitmix64). A copy goes on with the same numbers as the original, so that two
// tensors, such as an image and its mask, can be changed in the same way.
class SampleRandom {
 public:
  SampleRandom(const EpochKey& key, std::int64_t sample);

  std::uint64_t bits();                     // 64 random bits
  double uniform();                         // 0 <= x < 1
  double uniform(double low, double high);  // low <= x < high; low if they are equal
  std::int64_t below(std::int64_t bound);   // 0 <= x < bound, for a bound of at least 1
  bool chance(double probability);          // true with this probability
  double normal();                          // mean 0, variance 1
  double beta(double a, double b);          // 0 <= x <= 1, for positive a and b

  // For torch's functions: torch::randn({3}, random.generator()). Each call makes another one,
  // which takes some microseconds.
  at::Generator generator();

 private:
  double gamma(double shape);

  std::uint64_t state_;
};

// Which sample of which epoch is wanted, with its random numbers.
struct SampleContext {
  SampleContext(const EpochKey& key, std::int64_t sample)
      : index(sample), epoch(key.epoch), random(key, sample) {}

  std::int64_t index;
  std::int64_t epoch;
  SampleRandom random;
};

}  // namespace lockstep::data
