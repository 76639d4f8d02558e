// Compares a loss with the formula of its paper (scripts/goldens/loss.py).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/loss/over.h"

namespace lockstep::testing {

struct LossCase {
  nlohmann::json options;
  torch::Tensor outputs;  // float64, requires a gradient
  torch::Tensor targets;
  double loss = 0;
  torch::Tensor gradient;
};

inline std::vector<LossCase> load_losses(const std::string& name) {
  const auto golden =
      nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/loss.json"));
  std::vector<LossCase> cases;
  for (const auto& item : golden["cases"]) {
    if (item["name"] != name) continue;
    const auto shape = item["shape"].get<std::vector<std::int64_t>>();
    const auto of = [](const nlohmann::json& values, const std::vector<std::int64_t>& sizes) {
      return torch::tensor(values.get<std::vector<double>>(), torch::kFloat64).reshape(sizes);
    };
    torch::Tensor targets =
        of(item["targets"], item["target_shape"].get<std::vector<std::int64_t>>());
    if (item["targets"][0].is_number_integer()) targets = targets.to(torch::kInt64);
    cases.push_back({.options = item["options"],
                     .outputs = of(item["outputs"], shape).clone().requires_grad_(),
                     .targets = targets,
                     .loss = item["loss"],
                     .gradient = of(item["gradient"], shape)});
  }
  return cases;
}

// `make` makes the loss module from the options of a case. The formulas are sums of a few hundred
// numbers in another order than here.
template <typename Make>
void expect_golden_losses(const std::string& name, const Make& make) {
  const std::vector<LossCase> cases = load_losses(name);
  EXPECT_GE(cases.size(), 2u) << "in the golden file for " << name;
  for (const LossCase& item : cases) {
    SCOPED_TRACE(name + item.options.dump());
    const torch::Tensor loss = make(item.options)->forward(item.outputs, item.targets);
    EXPECT_NEAR(loss.item<double>(), item.loss, 1e-11 * (1 + item.loss));
    loss.backward();
    EXPECT_TRUE(torch::allclose(item.outputs.grad(), item.gradient, 1e-8, 1e-10))
        << item.outputs.grad() - item.gradient;
    // In the precision of training, too.
    const auto single = item.outputs.detach().to(torch::kFloat32).requires_grad_();
    const auto targets =
        item.targets.is_floating_point() ? item.targets.to(torch::kFloat32) : item.targets;
    const torch::Tensor rough = make(item.options)->forward(single, targets);
    EXPECT_NEAR(rough.item<double>(), item.loss, 1e-5 * (1 + item.loss));
    rough.backward();
    EXPECT_TRUE(single.grad().isfinite().all().template item<bool>());
  }
}

template <typename F>
std::string loss_error(F&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The mean of the losses of two halves of the samples, by their weights.
template <typename Loss>
double loss_of_halves(const Loss& loss, const torch::Tensor& outputs,
                      const torch::Tensor& targets) {
  double sum = 0;
  double weights = 0;
  const std::int64_t half = outputs.size(0) / 2;
  for (const auto& [begin, count] :
       {std::pair<std::int64_t, std::int64_t>{0, half}, {half, outputs.size(0) - half}}) {
    const torch::Tensor x = outputs.narrow(0, begin, count);
    const torch::Tensor y = targets.narrow(0, begin, count);
    const LossOver over = loss->over(x, y);
    const double weight =
        over.kind == LossOver::Kind::kWeight ? over.weight : static_cast<double>(count);
    sum += weight * loss->forward(x, y).template item<double>();
    weights += weight;
  }
  return sum / weights;
}

}  // namespace lockstep::testing
