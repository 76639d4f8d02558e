// The inner loops of a resize. Internal to transform/: other code calls resample().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

// The neighbouring inputs that make one output.
struct Inputs {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Along one axis: each output is the sum of its inputs, each times its weight.
template <typename Weight>
struct AxisWeights {
  std::vector<Inputs> inputs;   // one per output
  std::vector<Weight> weights;  // `room` per output, of which the first `count` are used
  std::int64_t room = 0;

  std::int64_t outputs() const { return static_cast<std::int64_t>(inputs.size()); }
  const Weight* of(std::int64_t output) const {
    return weights.data() + static_cast<std::size_t>(output * room);
  }
};

// Weights of bytes are integers with this many bits after the point, as in Pillow.
inline constexpr int kWeightBits = 22;

// Rows of bytes. Strides are bytes from one row to the next.
struct ByteRows {
  const std::uint8_t* from = nullptr;
  std::int64_t from_stride = 0;
  // Used instead of the last row. With three channels two bytes behind it must be readable.
  const std::uint8_t* last = nullptr;
  std::int64_t rows = 0;
  std::int64_t channels = 1;  // innermost
  // With three channels a byte behind each row is overwritten.
  std::uint8_t* to = nullptr;
  std::int64_t to_stride = 0;

  const std::uint8_t* row(std::int64_t at) const {
    return at + 1 == rows ? last : from + at * from_stride;
  }
};

// Resizes each row.
void resample_rows(const ByteRows& rows, const AxisWeights<std::int32_t>& weights);

// Columns of bytes: `width` values per row, which may be pixels with several channels.
struct ByteColumns {
  const std::uint8_t* from = nullptr;  // row 0 of the weights' inputs
  std::int64_t from_stride = 0;
  std::int64_t width = 0;
  std::uint8_t* to = nullptr;
  std::int64_t to_stride = 0;
};

// Makes each output row of several input rows.
void resample_columns(const ByteColumns& columns, const AxisWeights<std::int32_t>& weights);

// The same for floats of one channel. Strides are counted in floats.
struct FloatRows {
  const float* from = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t rows = 0;
  float* to = nullptr;
  std::int64_t to_stride = 0;
};
void resample_rows(const FloatRows& rows, const AxisWeights<float>& weights);

struct FloatColumns {
  const float* from = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t width = 0;
  float* to = nullptr;
  std::int64_t to_stride = 0;
};
void resample_columns(const FloatColumns& columns, const AxisWeights<float>& weights);

}  // namespace lockstep::data
