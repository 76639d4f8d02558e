// Python's names for the storage of each number type, for the pickler and the unpickler.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <torch/types.h>

namespace lockstep::checkpoint {

// The names in Python's module torch.
inline constexpr std::array<std::pair<std::string_view, torch::ScalarType>, 12> kStorageTypes = {
    {{"FloatStorage", torch::kFloat},
     {"DoubleStorage", torch::kDouble},
     {"HalfStorage", torch::kHalf},
     {"BFloat16Storage", torch::kBFloat16},
     {"LongStorage", torch::kLong},
     {"IntStorage", torch::kInt},
     {"ShortStorage", torch::kShort},
     {"CharStorage", torch::kChar},
     {"ByteStorage", torch::kByte},
     {"BoolStorage", torch::kBool},
     {"ComplexFloatStorage", torch::kComplexFloat},
     {"ComplexDoubleStorage", torch::kComplexDouble}}};

inline std::optional<std::string_view> storage_type_name(torch::ScalarType type) {
  for (const auto& [name, known] : kStorageTypes) {
    if (known == type) return name;
  }
  return std::nullopt;
}

// The type of a whole name like "torch.FloatStorage".
inline std::optional<torch::ScalarType> storage_type_named(std::string_view whole_name) {
  constexpr std::string_view kModule = "torch.";
  if (!whole_name.starts_with(kModule)) return std::nullopt;
  for (const auto& [name, known] : kStorageTypes) {
    if (whole_name.substr(kModule.size()) == name) return known;
  }
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
