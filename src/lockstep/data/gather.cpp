#include "lockstep/data/gather.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <ATen/Parallel.h>

#include "lockstep/base/error.h"
#include "lockstep/base/vectorize.h"

namespace lockstep::data {
namespace {

// If a thread has fewer bytes of the result than this, starting it costs more than it saves.
constexpr std::int64_t kBytesPerThread = 512 * 1024;

// Rows are selected in random order, so the hardware cannot predict the next one, and we prefetch
// it. For a long row the start is enough, because the hardware predicts the rest.
constexpr std::size_t kRowsAhead = 2;
constexpr std::int64_t kPrefetchBytes = 2048;
constexpr std::int64_t kCacheLine = 64;

void prefetch(const char* row, std::int64_t bytes) {
  for (std::int64_t at = 0; at < std::min(bytes, kPrefetchBytes); at += kCacheLine) {
    __builtin_prefetch(row + at);
  }
}

// Calls body(k, row) for each index k.
template <typename Body>
void for_each_row(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                  const torch::Tensor& out, const Body& body) {
  const auto count = static_cast<std::int64_t>(indices.size());
  if (count == 0 || out.numel() == 0) return;
  const auto* base = static_cast<const char*>(rows.data_ptr());
  const auto row_bytes = static_cast<std::int64_t>(rows.nbytes()) / rows.size(0);
  const auto out_bytes = static_cast<std::int64_t>(out.nbytes()) / count;
  const std::int64_t grain = std::max<std::int64_t>(1, kBytesPerThread / out_bytes);
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      if (k + static_cast<std::int64_t>(kRowsAhead) < end) {
        prefetch(base + indices[k + kRowsAhead] * row_bytes, row_bytes);
      }
      body(k, base + indices[k] * row_bytes);
    }
  });
}

template <typename Scalar>
void copy_scalars(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                  torch::Tensor& out) {
  const auto* from = static_cast<const char*>(rows.data_ptr());
  auto* to = static_cast<Scalar*>(out.data_ptr());
  for (std::size_t k = 0; k < indices.size(); ++k) {
    std::memcpy(to + k, from + indices[k] * static_cast<std::int64_t>(sizeof(Scalar)),
                sizeof(Scalar));
  }
}

// The numbers of one row, as the integers that have their bits.
template <typename Bits>
struct FloatRow {
  const char* from;
  char* to;
  std::int64_t count;
  Bits lowest_exponent_bit;
  Bits& seen;  // its highest bit is set if a number is NaN or infinite
};

template <typename Bits>
struct CopyAndCheckLoop {
  LOCKSTEP_ALWAYS_INLINE void operator()(const FloatRow<Bits>& row) const {
    const char* __restrict from = row.from;
    char* __restrict to = row.to;
    constexpr Bits kWithoutSign = static_cast<Bits>(~Bits{0}) >> 1;
    // Local copies: the bytes that are written could be those of `row`, as far as the compiler
    // knows.
    const Bits carry = row.lowest_exponent_bit;
    const std::int64_t count = row.count;
    Bits seen = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(Bits)), &bits, sizeof(Bits));
      // All bits of the exponent are set if a number is not finite. Then the sum reaches the bit of
      // the sign. Unlike comparisons, this has instructions for all sizes.
      seen = static_cast<Bits>(seen | static_cast<Bits>((bits & kWithoutSign) + carry));
    }
    row.seen = static_cast<Bits>(row.seen | seen);
  }
};

template <typename Bits>
bool copy_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                 torch::Tensor& out, int mantissa_bits) {
  if (indices.empty() || out.numel() == 0) return true;
  const auto row_bytes = static_cast<std::int64_t>(out.nbytes() / indices.size());
  auto* to = static_cast<char*>(out.data_ptr());
  std::atomic<bool> is_finite = true;
  for_each_row(rows, indices, out, [&](std::int64_t k, const char* row) {
    Bits seen = 0;
    run_best(CopyAndCheckLoop<Bits>(),
             FloatRow<Bits>{.from = row,
                            .to = to + k * row_bytes,
                            .count = row_bytes / static_cast<std::int64_t>(sizeof(Bits)),
                            .lowest_exponent_bit = static_cast<Bits>(Bits{1} << mantissa_bits),
                            .seen = seen});
    constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    if ((seen & kSign) != 0) is_finite.store(false, std::memory_order_relaxed);
  });
  return is_finite;
}

// One channel of one image.
struct PixelPlane {
  const std::uint8_t* from;
  float* to;
  std::int64_t pixels;
  std::int64_t stride;  // between pixels of the channel in `from`
  float mean;
  float std;
};

template <bool kNormalise>
LOCKSTEP_ALWAYS_INLINE inline void convert_plane(const PixelPlane& plane, std::int64_t stride) {
  const std::uint8_t* __restrict from = plane.from;
  float* __restrict to = plane.to;
  const float mean = plane.mean;
  const float std = plane.std;
  for (std::int64_t i = 0; i < plane.pixels; ++i) {
    const float value = static_cast<float>(from[i * stride]) / 255.0F;
    to[i] = kNormalise ? (value - mean) / std : value;
  }
}

template <bool kNormalise>
LOCKSTEP_ALWAYS_INLINE inline void convert(const PixelPlane& plane) {
  // The strides of grey and colour images are constants here, so that their loops are vectorised.
  if (plane.stride == 1) {
    convert_plane<kNormalise>(plane, 1);
  } else if (plane.stride == 3) {
    convert_plane<kNormalise>(plane, 3);
  } else {
    convert_plane<kNormalise>(plane, plane.stride);
  }
}

template <bool kNormalise>
struct ConvertLoop {
  LOCKSTEP_ALWAYS_INLINE void operator()(const PixelPlane& plane) const {
    convert<kNormalise>(plane);
  }
};

}  // namespace

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw DataError("sample {}: the data set has {}", index,
                      size == 0 ? "none" : fmt::format("0 to {}", size - 1));
    }
  }
}

torch::Tensor reuse_or_allocate(const Batch& reuse, std::string_view key, torch::IntArrayRef shape,
                                torch::ScalarType type) {
  const torch::Tensor* const old = reuse.find(key);
  if (old != nullptr && old->device().is_cpu() && old->scalar_type() == type &&
      old->sizes() == shape && old->is_contiguous()) {
    return *old;
  }
  return torch::empty(shape, torch::dtype(type));
}

std::optional<std::int64_t> channels_for(const BytesToFloat& floats, torch::IntArrayRef image) {
  if (image.size() != 2 && image.size() != 3) return std::nullopt;
  if (image.size() == 3 && looks_channels_first(image)) return std::nullopt;
  const std::int64_t channels = image.size() == 3 ? image[2] : 1;
  const auto means = static_cast<std::int64_t>(floats.mean.size());
  const bool fits = channels > 0 && (means <= 1 || means == channels);
  return fits ? std::optional(channels) : std::nullopt;
}

void gather_copy(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                 torch::Tensor& out) {
  if (indices.empty() || out.numel() == 0) return;
  const std::size_t row_bytes = out.nbytes() / indices.size();
  switch (row_bytes) {
    case 1:
      return copy_scalars<std::uint8_t>(rows, indices, out);
    case 4:
      return copy_scalars<std::uint32_t>(rows, indices, out);
    case 8:
      return copy_scalars<std::uint64_t>(rows, indices, out);
    default:
      break;
  }
  auto* to = static_cast<char*>(out.data_ptr());
  for_each_row(rows, indices, out, [=](std::int64_t k, const char* row) {
    std::memcpy(to + static_cast<std::size_t>(k) * row_bytes, row, row_bytes);
  });
}

bool gather_copy_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                        torch::Tensor& out) {
  switch (c10::toRealValueType(rows.scalar_type())) {
    case torch::kFloat16:
      return copy_finite<std::uint16_t>(rows, indices, out, 10);
    case torch::kBFloat16:
      return copy_finite<std::uint16_t>(rows, indices, out, 7);
    case torch::kFloat32:
      return copy_finite<std::uint32_t>(rows, indices, out, 23);
    case torch::kFloat64:
      return copy_finite<std::uint64_t>(rows, indices, out, 52);
    default:
      gather_copy(rows, indices, out);
      return true;
  }
}

void gather_bytes_to_int64(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           torch::Tensor& out) {
  if (indices.empty()) return;
  const std::int64_t row = out.numel() / static_cast<std::int64_t>(indices.size());
  auto* to = out.data_ptr<std::int64_t>();
  for_each_row(rows, indices, out, [=](std::int64_t k, const char* from) {
    std::copy_n(reinterpret_cast<const std::uint8_t*>(from), row, to + k * row);
  });
}

void gather_bytes_to_float(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           const PixelMap& map, torch::Tensor& out) {
  if (indices.empty()) return;
  const std::int64_t row = out.numel() / static_cast<std::int64_t>(indices.size());
  const std::int64_t pixels = row / map.channels;
  const bool normalise = !map.mean.empty();
  auto* to = out.data_ptr<float>();
  for_each_row(rows, indices, out, [&](std::int64_t k, const char* from) {
    for (std::int64_t c = 0; c < map.channels; ++c) {
      const std::size_t at = map.mean.size() == 1 ? 0 : static_cast<std::size_t>(c);
      const PixelPlane plane{.from = reinterpret_cast<const std::uint8_t*>(from) + c,
                             .to = to + k * row + c * pixels,
                             .pixels = pixels,
                             .stride = map.channels,
                             .mean = normalise ? map.mean[at] : 0.0F,
                             .std = normalise ? map.std[at] : 1.0F};
      if (normalise) {
        run_best(ConvertLoop<true>(), plane);
      } else {
        run_best(ConvertLoop<false>(), plane);
      }
    }
  });
}

}  // namespace lockstep::data
