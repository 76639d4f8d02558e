// How precisely gradients are summed and sent. With bf16 every term and every sum of the tree
// (tree.h) is rounded to bfloat16, to the nearest and in a tie to the even one. The rounding
// belongs to the sum and not to a message: it takes place wherever a node is computed, so a sum has
// the same bits for any number of ranks and over any communicator (docs/decisions/wire.md).
#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

namespace lockstep {

// fp32: sums in the type of the gradients. bf16: gradients of float32 and their sums are rounded to
// bfloat16, which has 2 bytes.
//
//   .wire = "bf16"
class Wire {
 public:
  enum Type : std::uint8_t { kFp32, kBf16 };

  constexpr Wire() = default;
  constexpr Wire(Type type) : type_(type) {}
  // "fp32" or "bf16". Throws ConfigError for any other.
  Wire(const char* name);
  Wire(const std::string& name);

  constexpr Type type() const { return type_; }
  const char* name() const;  // "bf16"

  friend constexpr bool operator==(Wire, Wire) = default;

 private:
  Type type_ = kFp32;
};

namespace comm {

// Whether numbers of this type are rounded. Float64 is not: a model of that type was chosen for its
// digits. Types of 2 bytes are sent as they are.
bool is_rounded(Wire wire, torch::ScalarType type);

// The functions below compute the same bits with every instruction set. A NaN becomes the quiet NaN
// 0x7fc0, an infinity stays, and a number beyond the largest bfloat16 (3.39e38) becomes infinite.

// `to` may be the same array as `from`.
void round_to_bf16(const float* from, float* to, std::int64_t count);

// out = a + b, where both terms and the sum are rounded. `out` may be the same array as `a` or `b`.
void add_rounded(const float* a, const float* b, float* out, std::int64_t count);
// The same of numbers that are stored as bfloat16.
void add_rounded(const c10::BFloat16* a, const c10::BFloat16* b, c10::BFloat16* out,
                 std::int64_t count);

// Between float32 and bfloat16. The arrays must not overlap.
void narrow_to_bf16(const float* from, c10::BFloat16* to, std::int64_t count);
void widen_from_bf16(const c10::BFloat16* from, float* to, std::int64_t count);

}  // namespace comm
}  // namespace lockstep
