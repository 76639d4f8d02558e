#include "lockstep/transform/resample_avx2.h"

#include <algorithm>
#include <cstring>

#if LOCKSTEP_HAS_AVX2_CLONE
#include <immintrin.h>
#endif

namespace lockstep::data {
namespace {

constexpr int kLowBits = kWeightBits / 2;

}  // namespace

bool pair_up(const AxisWeights<std::int32_t>& weights, PairedWeights& paired) {
  std::int64_t longest = 0;
  for (const Inputs& inputs : weights.inputs) longest = std::max(longest, inputs.count);
  const Inputs& last = weights.inputs.back();
  const std::int64_t available = last.first + last.count;
  paired.count = (longest + 1) / 2;
  if (available < 2 * paired.count) return false;

  const std::int64_t outputs = weights.outputs();
  paired.first.resize(static_cast<std::size_t>(outputs));
  paired.all.assign(static_cast<std::size_t>(outputs * paired.count), {});
  for (std::int64_t i = 0; i < outputs; ++i) {
    const Inputs& inputs = weights.inputs[static_cast<std::size_t>(i)];
    // Near the end the pairs begin earlier, with weights of 0, and do not reach beyond it.
    const std::int64_t first = std::min(inputs.first, available - 2 * paired.count);
    paired.first[static_cast<std::size_t>(i)] = first;
    PairedWeights::Pair* const pairs = paired.all.data() + i * paired.count;
    for (std::int64_t k = 0; k < inputs.count; ++k) {
      const std::int32_t weight = weights.of(i)[k];
      const std::int64_t at = inputs.first - first + k;
      pairs[at / 2].high[at % 2] = static_cast<std::int16_t>(weight >> kLowBits);
      pairs[at / 2].low[at % 2] = static_cast<std::int16_t>(weight & ((1 << kLowBits) - 1));
    }
  }
  return true;
}

#if LOCKSTEP_HAS_AVX2_CLONE

#define LOCKSTEP_AVX2 __attribute__((target("avx2")))

namespace {

// The sums of eight outputs.
struct Sums {
  __m256i high;
  __m256i low;
};

// One pair of weights in every lane.
struct PairInLanes {
  __m256i high;
  __m256i low;
};

LOCKSTEP_AVX2 inline PairInLanes load(const PairedWeights::Pair& pair) {
  std::int32_t high;
  std::int32_t low;
  std::memcpy(&high, pair.high, sizeof high);
  std::memcpy(&low, pair.low, sizeof low);
  return {.high = _mm256_set1_epi32(high), .low = _mm256_set1_epi32(low)};
}

LOCKSTEP_AVX2 inline Sums start() {
  return {.high = _mm256_setzero_si256(), .low = _mm256_set1_epi32(1 << (kWeightBits - 1))};
}

// `inputs` has two numbers of 16 bits for each output.
LOCKSTEP_AVX2 inline void add(const __m256i& inputs, const PairInLanes& pair, Sums& sums) {
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(inputs, pair.high));
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(inputs, pair.low));
}

LOCKSTEP_AVX2 inline __m256i finish(const Sums& sums) {
  const __m256i whole = _mm256_add_epi32(_mm256_slli_epi32(sums.high, kLowBits), sums.low);
  return _mm256_srai_epi32(whole, kWeightBits);
}

LOCKSTEP_AVX2 inline __m128i load_8_bytes(const std::uint8_t* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}

// One pixel of two rows at a time. Of three channels the fourth lane has no meaning, and its result
// is overwritten by the next pixel.
template <int kChannels>
LOCKSTEP_AVX2 void resample_two_rows(const std::uint8_t* const (&from)[2],
                                     std::uint8_t* const (&to)[2], const PairedWeights& weights) {
  // Puts the channels of two neighbouring pixels side by side, as numbers of 16 bits.
  constexpr char kZero = -1;
  constexpr char kNext = kChannels;
  const __m256i side_by_side =
      _mm256_setr_epi8(0, kZero, kNext, kZero, 1, kZero, kNext + 1, kZero, 2, kZero, kNext + 2,
                       kZero, 3, kZero, kNext + 3, kZero, 0, kZero, kNext, kZero, 1, kZero,
                       kNext + 1, kZero, 2, kZero, kNext + 2, kZero, 3, kZero, kNext + 3, kZero);
  const std::int64_t outputs = weights.outputs();
  for (std::int64_t x = 0; x < outputs; ++x) {
    const PairedWeights::Pair* const pairs = weights.of(x);
    const std::int64_t first = weights.first[static_cast<std::size_t>(x)] * kChannels;
    Sums sums = start();
    for (std::int64_t i = 0; i < weights.count; ++i) {
      const std::int64_t at = first + i * 2 * kChannels;
      const __m256i pixels =
          _mm256_set_m128i(load_8_bytes(from[1] + at), load_8_bytes(from[0] + at));
      add(_mm256_shuffle_epi8(pixels, side_by_side), load(pairs[i]), sums);
    }
    const __m256i words = _mm256_packs_epi32(finish(sums), _mm256_setzero_si256());
    const __m256i bytes = _mm256_packus_epi16(words, _mm256_setzero_si256());
    const int above = _mm256_extract_epi32(bytes, 0);
    const int below = _mm256_extract_epi32(bytes, 4);
    std::memcpy(to[0] + x * kChannels, &above, sizeof above);
    std::memcpy(to[1] + x * kChannels, &below, sizeof below);
  }
}

// 32 neighbouring columns.
LOCKSTEP_AVX2 inline void resample_32_columns(const std::uint8_t* from, std::int64_t stride,
                                              const PairedWeights::Pair* pairs, std::int64_t count,
                                              std::uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  Sums sums[4] = {start(), start(), start(), start()};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const row = reinterpret_cast<const __m256i*>(from + 2 * i * stride);
    const auto* const next = reinterpret_cast<const __m256i*>(from + (2 * i + 1) * stride);
    const __m256i above = _mm256_loadu_si256(row);
    const __m256i below = _mm256_loadu_si256(next);
    const __m256i low = _mm256_unpacklo_epi8(above, below);
    const __m256i high = _mm256_unpackhi_epi8(above, below);
    const PairInLanes pair = load(pairs[i]);
    add(_mm256_unpacklo_epi8(low, zero), pair, sums[0]);
    add(_mm256_unpackhi_epi8(low, zero), pair, sums[1]);
    add(_mm256_unpacklo_epi8(high, zero), pair, sums[2]);
    add(_mm256_unpackhi_epi8(high, zero), pair, sums[3]);
  }
  // Packing undoes the order of unpacking.
  const __m256i low = _mm256_packs_epi32(finish(sums[0]), finish(sums[1]));
  const __m256i high = _mm256_packs_epi32(finish(sums[2]), finish(sums[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_packus_epi16(low, high));
}

LOCKSTEP_AVX2 inline std::uint8_t resample_column(const std::uint8_t* from, std::int64_t stride,
                                                  const PairedWeights::Pair* pairs,
                                                  std::int64_t count) {
  std::int32_t high = 0;
  std::int32_t low = 1 << (kWeightBits - 1);
  for (std::int64_t i = 0; i < 2 * count; ++i) {
    high += from[i * stride] * pairs[i / 2].high[i % 2];
    low += from[i * stride] * pairs[i / 2].low[i % 2];
  }
  const std::int32_t sum = (high * (1 << kLowBits) + low) >> kWeightBits;
  return static_cast<std::uint8_t>(std::clamp(sum, 0, 255));
}

}  // namespace

LOCKSTEP_AVX2 void resample_rows_avx2(const ByteRows& rows, const PairedWeights& weights) {
  for (std::int64_t row = 0; row < rows.rows; row += 2) {
    const std::int64_t second = std::min(row + 1, rows.rows - 1);
    const std::uint8_t* const from[2] = {rows.row(row), rows.row(second)};
    std::uint8_t* const to[2] = {rows.to + row * rows.to_stride, rows.to + second * rows.to_stride};
    if (rows.channels == 3) {
      resample_two_rows<3>(from, to, weights);
    } else {
      resample_two_rows<4>(from, to, weights);
    }
  }
}

LOCKSTEP_AVX2 void resample_columns_avx2(const ByteColumns& columns, const PairedWeights& weights) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t stride = columns.from_stride;
  for (std::int64_t y = 0; y < weights.outputs(); ++y) {
    const PairedWeights::Pair* const pairs = weights.of(y);
    const std::uint8_t* const from =
        columns.from + weights.first[static_cast<std::size_t>(y)] * stride;
    std::uint8_t* const to = columns.to + y * columns.to_stride;
    std::int64_t x = 0;
    for (; x + kBlock <= columns.width; x += kBlock) {
      resample_32_columns(from + x, stride, pairs, weights.count, to + x);
    }
    for (; x < columns.width; ++x) {
      to[x] = resample_column(from + x, stride, pairs, weights.count);
    }
  }
}

#endif

}  // namespace lockstep::data
