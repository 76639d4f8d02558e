// The statistics by which fields are scaled.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/scaling.h"

namespace lockstep::science {

struct MeasuredFields {
  const data::Dataset& fields;            // samples have tensors [C, …] of floats
  std::span<const std::int64_t> samples;  // those that count: the ones for training
  std::string key;                        // of the tensor
};

// The scaling of this kind for these samples: the mean and the standard deviation (the square root
// of the mean square difference), or the smallest and the largest value, of each channel. They are
// computed by one thread in double, sample by sample in the order that is given, so they do not
// depend on workers, threads or memory. A channel whose values are all equal gets the scale 1.
// Throws DataError, which names the sample, if it has values that are not above 0 with kLog, or
// that are not finite.
data::ChannelScaling measure(const MeasuredFields& measured, data::Normalization kind);

}  // namespace lockstep::science
