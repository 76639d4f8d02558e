// Functions that the tests of networks share, and the results of Python
// (scripts/goldens/network.py).
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/file.h"

namespace lockstep::network::testing {

inline std::int64_t count_of(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

inline std::vector<std::int64_t> sizes_of(const torch::nn::Module& model, const std::string& name) {
  const auto parameters = model.named_parameters();
  const auto* const found = parameters.find(name);
  if (found != nullptr) return found->sizes().vec();
  const auto buffers = model.named_buffers();
  const auto* const buffer = buffers.find(name);
  return buffer == nullptr ? std::vector<std::int64_t>{-1} : buffer->sizes().vec();
}

// The error that `work` throws; "" if it throws none.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Each parameter must have a gradient that is not zero everywhere. The outputs get different
// weights, because a plain sum has no gradient through a norm.
inline void expect_gradients_everywhere(const torch::nn::Module& model,
                                        const torch::Tensor& output) {
  const auto weights = torch::arange(output.numel(), output.options()).reshape(output.sizes());
  (output * (weights * 0.7).sin()).sum().backward();
  for (const auto& item : model.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0.0) << item.key();
  }
}

// The integers i * i mod 1009.
inline torch::Tensor squares(torch::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  const auto i = torch::arange(count, torch::kInt64);
  return (i * i).remainder(1009).reshape(sizes);
}

// The numbers that the script uses, too: sines of these integers + n.
inline torch::Tensor wave(torch::IntArrayRef sizes, std::int64_t n) {
  return (squares(sizes) + n).to(torch::kFloat64).sin().to(torch::kFloat32);
}

// Tokens from 0 to `below` - 1.
inline torch::Tensor wave_tokens(torch::IntArrayRef sizes, std::int64_t below) {
  return squares(sizes).remainder(below);
}

// Fills the parameters by the formula. Matrices and kernels are small enough that activations stay
// near 1, and scales of norms stay near 1.
inline void fill_by_formula(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  std::int64_t n = 0;
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() > 1) {
      const auto inputs = static_cast<double>(parameter.numel() / parameter.size(0));
      parameter.copy_(wave(parameter.sizes(), n) * std::sqrt(2 / inputs));
    } else {
      parameter.copy_(1 + wave(parameter.sizes(), n) * 0.1);
    }
    ++n;
  }
}

inline const nlohmann::json& golden(const std::string& name) {
  static const auto json = nlohmann::json::parse(read_file(LOCKSTEP_GOLDENS "/network.json"));
  return json.at(name);
}

// Python's model has parameters of these names, in this order.
inline void expect_golden_names(const std::string& name, const torch::nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  EXPECT_EQ(names, golden(name).at("parameters").get<std::vector<std::string>>()) << name;
}

// Compares an output with that of Python's model.
inline void expect_golden(const std::string& name, const std::string& which,
                          const torch::Tensor& output) {
  const auto& saved = golden(name).at(which);
  ASSERT_EQ(output.sizes().vec(), saved.at("sizes").get<std::vector<std::int64_t>>()) << name;
  const auto expected =
      torch::tensor(saved.at("values").get<std::vector<double>>(), torch::kFloat64);
  const auto values = output.detach().flatten().to(torch::kFloat64);
  // Python computed in double. In float, Python itself differs by up to 3e-6 of the largest value.
  const double tolerance = 2e-5 * expected.abs().max().item<double>();
  EXPECT_LT((values - expected).abs().max().item<double>(), tolerance) << name << " " << which;
}

}  // namespace lockstep::network::testing
