// How precisely gradients are summed and sent. With bf16 every term and every sum of the tree
// (tree.h) is rounded to bfloat16, to the nearest and in a tie to the even one. The rounding
// belongs to the sum and not to a message: it takes place wherever a node is computed, so a sum has
// the same bits for any number of ranks and over any communicator (docs/decisions/wire.md).
#pragma once

#include <cstdint>
#include <string_view>

#include <torch/types.h>

namespace lockstep {

enum class Wire {
  kFp32,  // sums in the type of the gradients
  kBf16,  // float32 gradients and their sums are rounded to bfloat16, 2 bytes each
};

// "fp32" or "bf16", as in configs.
std::string_view name_of(Wire wire);

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
