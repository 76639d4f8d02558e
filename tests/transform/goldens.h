// Images from a formula, and the results of Pillow, torchvision and torch for them
// (scripts/goldens/transform.py).
#pragma once

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

namespace lockstep::data::testing {

inline torch::Tensor byte_image(const std::vector<std::int64_t>& shape) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const torch::Tensor i = torch::arange(count, torch::kInt64);
  return (i * 3 + (i * i).remainder(1009).div(8, "floor"))
      .remainder(256)
      .to(torch::kUInt8)
      .reshape(shape);
}

inline torch::Tensor float_image(const std::vector<std::int64_t>& shape) {
  return byte_image(shape).to(torch::kFloat32) / 255;
}

inline torch::Tensor golden(const std::string& name) {
  static const auto all = nlohmann::json::parse(
      std::ifstream(std::filesystem::path(LOCKSTEP_GOLDENS) / "transform.json"));
  const nlohmann::json& saved = all.at("goldens").at(name);
  const auto shape = saved.at("shape").get<std::vector<std::int64_t>>();
  if (saved.contains("floats")) {
    return torch::tensor(saved.at("floats").get<std::vector<float>>()).reshape(shape);
  }
  const auto hexadecimal = saved.at("bytes").get<std::string>();
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < hexadecimal.size(); i += 2) {
    bytes.push_back(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  }
  return torch::tensor(bytes).to(torch::kUInt8).reshape(shape);
}

// Bytes must be equal, floats may differ by rounding.
inline void expect_golden(const torch::Tensor& result, const std::string& name) {
  const torch::Tensor expected = golden(name);
  ASSERT_EQ(result.sizes(), expected.sizes()) << name;
  ASSERT_EQ(result.scalar_type(), expected.scalar_type()) << name;
  const double difference =
      (result.to(torch::kFloat64) - expected.to(torch::kFloat64)).abs().max().item<double>();
  EXPECT_LE(difference, expected.is_floating_point() ? 1e-5 : 0) << name;
}

}  // namespace lockstep::data::testing
