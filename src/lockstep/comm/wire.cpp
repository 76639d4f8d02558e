#include "lockstep/comm/wire.h"

#include <bit>

#include "lockstep/base/vectorize.h"

namespace lockstep {

std::string_view name_of(Wire wire) {
  return wire == Wire::kBf16 ? "bf16" : "fp32";
}

namespace comm {
namespace {

// The rounding is done on integers, so that it depends neither on the rounding mode of the
// processor nor on its treatment of denormal numbers.
LOCKSTEP_ALWAYS_INLINE inline std::uint32_t rounded_bits(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
  // Both are not negative as signed numbers, which AVX2 can compare.
  const bool is_nan = static_cast<std::int32_t>(bits & 0x7fffffffU) > 0x7f800000;
  return is_nan ? 0x7fc00000U : nearest;
}

LOCKSTEP_ALWAYS_INLINE inline float rounded_number(float number) {
  return std::bit_cast<float>(rounded_bits(number));
}

LOCKSTEP_ALWAYS_INLINE inline float number_of(c10::BFloat16 stored) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(stored.x) << 16);
}

LOCKSTEP_ALWAYS_INLINE inline c10::BFloat16 stored_number(float number) {
  return {static_cast<std::uint16_t>(rounded_bits(number) >> 16), c10::BFloat16::from_bits()};
}

// Element i of an output depends only on elements i of the inputs, which the compiler cannot see if
// an output may be an input.
#if defined(__clang__)
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif

struct RoundLoop {
  const float* from;
  float* to;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] = rounded_number(from[i]);
  }
};

struct AddRoundedLoop {
  const float* a;
  const float* b;
  float* out;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = rounded_number(rounded_number(a[i]) + rounded_number(b[i]));
    }
  }
};

struct AddStoredLoop {
  const c10::BFloat16* a;
  const c10::BFloat16* b;
  c10::BFloat16* out;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = stored_number(number_of(a[i]) + number_of(b[i]));
    }
  }
};

struct NarrowLoop {
  const float* from;
  c10::BFloat16* to;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] = stored_number(from[i]);
  }
};

struct WidenLoop {
  const c10::BFloat16* from;
  float* to;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t count) const {
    LOCKSTEP_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) to[i] = number_of(from[i]);
  }
};

#undef LOCKSTEP_INDEPENDENT

}  // namespace

bool is_rounded(Wire wire, torch::ScalarType type) {
  return wire == Wire::kBf16 && type == torch::kFloat32;
}

void round_to_bf16(const float* from, float* to, std::int64_t count) {
  run_best(RoundLoop{from, to}, count);
}

void add_rounded(const float* a, const float* b, float* out, std::int64_t count) {
  run_best(AddRoundedLoop{a, b, out}, count);
}

void add_rounded(const c10::BFloat16* a, const c10::BFloat16* b, c10::BFloat16* out,
                 std::int64_t count) {
  run_best(AddStoredLoop{a, b, out}, count);
}

void narrow_to_bf16(const float* from, c10::BFloat16* to, std::int64_t count) {
  run_best(NarrowLoop{from, to}, count);
}

void widen_from_bf16(const c10::BFloat16* from, float* to, std::int64_t count) {
  run_best(WidenLoop{from, to}, count);
}

}  // namespace comm
}  // namespace lockstep
