// The type in which a model is computed: mixed precision (docs/guide/precision.md).
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// fp32, or bf16 or fp16 for the operations that LibTorch's autocast computes in 16 bits.
// Parameters, gradients and the state of the optimizer are float32 in any case.
//
//   .precision = "bf16"
class Precision {
 public:
  enum Type : std::uint8_t { kFp32, kBf16, kFp16 };

  constexpr Precision() = default;
  constexpr Precision(Type type) : type_(type) {}
  // "fp32", "bf16", "fp16", or PyTorch's names of these types: "float32", "bfloat16", "float16".
  // Throws ConfigError for any other.
  Precision(const char* name);
  Precision(const std::string& name);

  constexpr Type type() const { return type_; }
  const char* name() const;                                   // "bf16"
  constexpr bool is_mixed() const { return type_ != kFp32; }  // 16 bits where possible

  friend constexpr bool operator==(Precision, Precision) = default;

 private:
  Type type_ = kFp32;
};

}  // namespace lockstep
