#include "lockstep/command/input_shape.h"

#include <array>
#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::command {
namespace {

constexpr std::array<std::pair<const char*, torch::ScalarType>, 5> kTypeNames = {
    {{"float", torch::kFloat32},
     {"double", torch::kFloat64},
     {"long", torch::kInt64},
     {"int", torch::kInt32},
     {"bool", torch::kBool}}};

torch::ScalarType type_named(const std::string& name, const std::string& argument) {
  std::vector<std::string> known;
  for (const auto& [own, type] : kTypeNames) {
    if (name == own) return type;
    known.emplace_back(own);
  }
  throw ConfigError("--input-shape {}: unknown type '{}'; {}", argument, name,
                    suggest(name, known));
}

std::int64_t size_in(const std::string& text, const std::string& argument) {
  std::int64_t size = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size);
  if (error == std::errc() && rest == end && size > 0) return size;
  throw ConfigError(
      "--input-shape {}: expected positive sizes of one sample, for example 3,32,32, or "
      "tokens=16:long, got '{}'",
      argument, text);
}

}  // namespace

InputShape read_input_shape(const std::string& argument) {
  InputShape shape;
  std::string sizes = argument;
  if (const auto equals = sizes.find('='); equals != std::string::npos) {
    shape.name = sizes.substr(0, equals);
    sizes = sizes.substr(equals + 1);
  }
  if (const auto colon = sizes.find(':'); colon != std::string::npos) {
    shape.type = type_named(sizes.substr(colon + 1), argument);
    sizes = sizes.substr(0, colon);
  }
  while (!sizes.empty()) {
    const auto comma = std::min(sizes.find(','), sizes.size());
    shape.sizes.push_back(size_in(sizes.substr(0, comma), argument));
    sizes = comma < sizes.size() ? sizes.substr(comma + 1) : "";
  }
  return shape;
}

torch::Tensor example_of(const InputShape& shape, std::int64_t samples) {
  std::vector<std::int64_t> sizes = {samples};
  sizes.insert(sizes.end(), shape.sizes.begin(), shape.sizes.end());
  if (c10::isFloatingType(shape.type)) return torch::randn(sizes, shape.type);
  return shape.type == torch::kBool ? torch::zeros(sizes, shape.type)
                                    : torch::ones(sizes, shape.type);
}

}  // namespace lockstep::command
