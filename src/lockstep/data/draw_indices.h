// Random choices of indices, for samplers, and a hash to compare them. Not for users.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/random.h"

namespace lockstep::data {

// The random numbers of an epoch's order. They are other ones than those of any sample.
SampleRandom order_random(std::uint64_t seed, std::int64_t epoch);

void shuffle(std::vector<std::int64_t>& indices, SampleRandom& random);

// `count` of the indices in a random order. An index comes twice only if there are fewer than
// `count` of them. `from` must not be empty unless `count` is 0.
std::vector<std::int64_t> choose(std::span<const std::int64_t> from, std::int64_t count,
                                 SampleRandom& random);

// A hash of the values (FNV-1a, 16 hexadecimal digits): ranks compare it instead of the values.
std::string fingerprint(std::span<const std::int64_t> values);
std::string fingerprint(std::span<const double> values);

}  // namespace lockstep::data
