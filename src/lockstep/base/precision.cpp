#include "lockstep/base/precision.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

struct PrecisionNames {
  Precision::Type type;
  const char* name;
  const char* of_torch;
};

constexpr PrecisionNames kPrecisions[] = {{Precision::kFp32, "fp32", "float32"},
                                          {Precision::kBf16, "bf16", "bfloat16"},
                                          {Precision::kFp16, "fp16", "float16"}};

Precision::Type type_of(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& precision : kPrecisions) {
    if (name == precision.name || name == precision.of_torch) return precision.type;
    known.emplace_back(precision.name);
  }
  throw ConfigError("precision: expected fp32, bf16 or fp16, got '{}'; {}", name,
                    suggest(name, known));
}

}  // namespace

Precision::Precision(const char* name) : type_(type_of(name)) {}

Precision::Precision(const std::string& name) : type_(type_of(name)) {}

const char* Precision::name() const {
  return kPrecisions[type_].name;
}

}  // namespace lockstep
