#include "lockstep/transform/resample_kernels.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/vectorize.h"
#include "lockstep/transform/resample_avx2.h"

namespace lockstep::data {
namespace {

using ByteWeights = AxisWeights<std::int32_t>;
using FloatWeights = AxisWeights<float>;

// Added before the bits after the point are cut off, so that results are rounded.
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// Eight values. Vectors are passed by reference, because how a vector is passed by value depends on
// the instruction set.
constexpr std::int64_t kLanes = 8;
using Ints __attribute__((vector_size(4 * kLanes))) = std::int32_t;
using Bytes __attribute__((vector_size(kLanes))) = std::uint8_t;
using AllBytes __attribute__((vector_size(4 * kLanes))) = std::uint8_t;

LOCKSTEP_ALWAYS_INLINE inline std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

LOCKSTEP_ALWAYS_INLINE inline void add_bytes(const Bytes& bytes, std::int32_t weight, Ints& sums) {
  sums += __builtin_convertvector(bytes, Ints) * weight;
}

LOCKSTEP_ALWAYS_INLINE inline void clamp_to_bytes(Ints& sums) {
  sums >>= kWeightBits;
  sums = sums < 0 ? Ints{} : sums;
  sums = sums > 255 ? Ints{} + 255 : sums;
}

// Pixels of three or four bytes: one pixel of two rows at a time, four lanes each. Of three
// channels the fourth lane has a byte of the next pixel, and its result is overwritten by that
// pixel.
template <int kChannels>
struct PixelRowsLoop {
  const ByteWeights& weights;

  LOCKSTEP_ALWAYS_INLINE void operator()(const ByteRows& rows) const {
    for (std::int64_t row = 0; row < rows.rows; row += 2) {
      const std::int64_t second = std::min(row + 1, rows.rows - 1);
      resize_two(rows.row(row), rows.row(second), rows.to + row * rows.to_stride,
                 rows.to + second * rows.to_stride);
    }
  }

  LOCKSTEP_ALWAYS_INLINE void resize_two(const std::uint8_t* above, const std::uint8_t* below,
                                         std::uint8_t* to_above, std::uint8_t* to_below) const {
    const std::int64_t outputs = weights.outputs();
    for (std::int64_t x = 0; x < outputs; ++x) {
      const Inputs inputs = weights.inputs[static_cast<std::size_t>(x)];
      const std::int32_t* const weight = weights.of(x);
      Ints sums = Ints{} + kHalf;
      for (std::int64_t i = 0; i < inputs.count; ++i) {
        const std::int64_t at = (inputs.first + i) * kChannels;
        std::uint32_t pixels[2];
        std::memcpy(&pixels[0], above + at, 4);
        std::memcpy(&pixels[1], below + at, 4);
        Bytes bytes;
        std::memcpy(&bytes, pixels, sizeof bytes);
        add_bytes(bytes, weight[i], sums);
      }
      clamp_to_bytes(sums);
      // The lowest byte of each lane, in the first four bytes of each half: one instruction.
      const AllBytes all = reinterpret_cast<AllBytes>(sums);
      const AllBytes low =
          __builtin_shufflevector(all, all, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12,  //
                                  16, 20, 24, 28, 16, 20, 24, 28, 16, 20, 24, 28, 16, 20, 24, 28);
      std::memcpy(to_above + x * kChannels, &low, 4);
      std::memcpy(to_below + x * kChannels, reinterpret_cast<const char*>(&low) + 16, 4);
    }
  }
};

// Any number of channels, one value at a time.
struct ByteRowsLoop {
  const ByteWeights& weights;

  LOCKSTEP_ALWAYS_INLINE void operator()(const ByteRows& rows) const {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const std::uint8_t* const from = rows.row(row);
      std::uint8_t* to = rows.to + row * rows.to_stride;
      for (std::int64_t x = 0; x < weights.outputs(); ++x) {
        const Inputs inputs = weights.inputs[static_cast<std::size_t>(x)];
        const std::int32_t* const weight = weights.of(x);
        for (std::int64_t c = 0; c < rows.channels; ++c) {
          const std::uint8_t* const values = from + inputs.first * rows.channels + c;
          std::int32_t sum = kHalf;
          for (std::int64_t i = 0; i < inputs.count; ++i) {
            sum += values[i * rows.channels] * weight[i];
          }
          *to++ = to_byte(sum);
        }
      }
    }
  }
};

// Four vectors at a time, because a product takes ten cycles until the next one can be added to it.
struct ByteColumnsLoop {
  const ByteWeights& weights;
  static constexpr std::int64_t kBlock = 4 * kLanes;

  LOCKSTEP_ALWAYS_INLINE void operator()(const ByteColumns& columns) const {
    for (std::int64_t y = 0; y < weights.outputs(); ++y) {
      const Inputs inputs = weights.inputs[static_cast<std::size_t>(y)];
      const std::int32_t* const weight = weights.of(y);
      const std::uint8_t* const from = columns.from + inputs.first * columns.from_stride;
      std::uint8_t* const to = columns.to + y * columns.to_stride;
      std::int64_t x = 0;
      for (; x + kBlock <= columns.width; x += kBlock) {
        add_block(from + x, columns.from_stride, inputs.count, weight, to + x);
      }
      for (; x < columns.width; ++x) {
        std::int32_t sum = kHalf;
        for (std::int64_t i = 0; i < inputs.count; ++i) {
          sum += from[x + i * columns.from_stride] * weight[i];
        }
        to[x] = to_byte(sum);
      }
    }
  }

  LOCKSTEP_ALWAYS_INLINE void add_block(const std::uint8_t* from, std::int64_t stride,
                                        std::int64_t count, const std::int32_t* weight,
                                        std::uint8_t* __restrict to) const {
    Ints sums[4] = {Ints{} + kHalf, Ints{} + kHalf, Ints{} + kHalf, Ints{} + kHalf};
    for (std::int64_t i = 0; i < count; ++i) {
      Bytes bytes[4];
      std::memcpy(bytes, from + i * stride, sizeof bytes);
      add_bytes(bytes[0], weight[i], sums[0]);
      add_bytes(bytes[1], weight[i], sums[1]);
      add_bytes(bytes[2], weight[i], sums[2]);
      add_bytes(bytes[3], weight[i], sums[3]);
    }
    std::int32_t values[kBlock];
    std::memcpy(values, sums, sizeof values);
    for (std::int64_t i = 0; i < kBlock; ++i) to[i] = to_byte(values[i]);
  }
};

struct FloatRowsLoop {
  const FloatWeights& weights;

  LOCKSTEP_ALWAYS_INLINE void operator()(const FloatRows& rows) const {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const float* const from = rows.from + row * rows.from_stride;
      float* const to = rows.to + row * rows.to_stride;
      for (std::int64_t x = 0; x < weights.outputs(); ++x) {
        const Inputs inputs = weights.inputs[static_cast<std::size_t>(x)];
        const float* const weight = weights.of(x);
        float sum = 0;
        for (std::int64_t i = 0; i < inputs.count; ++i) sum += from[inputs.first + i] * weight[i];
        to[x] = sum;
      }
    }
  }
};

struct FloatColumnsLoop {
  const FloatWeights& weights;

  LOCKSTEP_ALWAYS_INLINE void operator()(const FloatColumns& columns) const {
    for (std::int64_t y = 0; y < weights.outputs(); ++y) {
      const Inputs inputs = weights.inputs[static_cast<std::size_t>(y)];
      float* __restrict to = columns.to + y * columns.to_stride;
      std::fill_n(to, columns.width, 0.0F);
      for (std::int64_t i = 0; i < inputs.count; ++i) {
        const float* __restrict from = columns.from + (inputs.first + i) * columns.from_stride;
        const float weight = weights.of(y)[i];
        for (std::int64_t x = 0; x < columns.width; ++x) to[x] += from[x] * weight;
      }
    }
  }
};

// The weights for the loops of AVX2, valid until the thread's next call, or null if this machine or
// these weights do not allow them.
const PairedWeights* paired_for_avx2([[maybe_unused]] const ByteWeights& weights) {
#if LOCKSTEP_HAS_AVX2_CLONE
  thread_local PairedWeights paired;
  if (__builtin_cpu_supports("avx2") && pair_up(weights, paired)) return &paired;
#endif
  return nullptr;
}

}  // namespace

void resample_rows(const ByteRows& rows, const ByteWeights& weights) {
#if LOCKSTEP_HAS_AVX2_CLONE
  if (rows.channels == 3 || rows.channels == 4) {
    if (const auto* paired = paired_for_avx2(weights)) return resample_rows_avx2(rows, *paired);
  }
#endif
  switch (rows.channels) {
    case 3:
      return run_best(PixelRowsLoop<3>{weights}, rows);
    case 4:
      return run_best(PixelRowsLoop<4>{weights}, rows);
    default:
      return run_best(ByteRowsLoop{weights}, rows);
  }
}

void resample_columns(const ByteColumns& columns, const ByteWeights& weights) {
#if LOCKSTEP_HAS_AVX2_CLONE
  if (const auto* paired = paired_for_avx2(weights)) return resample_columns_avx2(columns, *paired);
#endif
  run_best(ByteColumnsLoop{weights}, columns);
}

void resample_rows(const FloatRows& rows, const FloatWeights& weights) {
  run_best(FloatRowsLoop{weights}, rows);
}

void resample_columns(const FloatColumns& columns, const FloatWeights& weights) {
  run_best(FloatColumnsLoop{weights}, columns);
}

}  // namespace lockstep::data
