// The loops of resample_kernels.h for bytes, written with the instructions of AVX2: same results,
// in half the time. Internal to transform/.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/vectorize.h"
#include "lockstep/transform/resample_kernels.h"

namespace lockstep::data {

// Weights of inputs two by two, because one instruction multiplies numbers of 16 bits and adds two
// products. A weight has more bits, so it is split: weight = high * 2^kLowBits + low. Every output
// has the same number of pairs, so that the end of the loop over them is predicted: the others have
// weights of 0.
struct PairedWeights {
  struct Pair {
    std::int16_t high[2];
    std::int16_t low[2];
  };

  std::vector<std::int64_t> first;  // input of each output
  std::vector<Pair> all;            // `count` per output
  std::int64_t count = 0;

  std::int64_t outputs() const { return static_cast<std::int64_t>(first.size()); }
  const Pair* of(std::int64_t output) const { return all.data() + output * count; }
};

// False if there are fewer inputs than two for each pair: then there are not enough to read.
bool pair_up(const AxisWeights<std::int32_t>& weights, PairedWeights& paired);

#if LOCKSTEP_HAS_AVX2_CLONE

// For machines with AVX2, three or four channels. Two bytes behind `last` must be readable.
void resample_rows_avx2(const ByteRows& rows, const PairedWeights& weights);

// For machines with AVX2.
void resample_columns_avx2(const ByteColumns& columns, const PairedWeights& weights);

#endif

}  // namespace lockstep::data
