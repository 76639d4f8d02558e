// The problem of scripts/goldens/optim_optimizers.py: parameters and gradients with known bits, and
// checks that every optimizer must pass with them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/torch_layout.h"

namespace lockstep::optim::testing {

// One kind of tensors in a state, by parameter.
inline StateDict tensors_in(const StateDict& state, const std::string& kind) {
  StateDict found;
  for (const auto& [name, kinds] :
       from_torch_layout(state, {.optimizer = "of a test"}).parameters) {
    if (kinds.contains(kind)) found.set(name, kinds.at(kind));
  }
  return found;
}

// The state as version 0.1.0 saved it: {kind: {parameter: tensor}}, beside the other values.
inline StateDict as_version_0_1(const StateDict& state) {
  StateDict old;
  for (const auto& [key, value] : state) {
    if (key != "state" && key != "param_groups" && key != "slots") old.set(key, value);
  }
  for (const StateValue& slot : state.get<StateList>("slots")) {
    const std::string& kind = *slot.get_if<std::string>();
    old.set(kind, tensors_in(state, kind));
  }
  return old;
}

inline nlohmann::json load_golden(const std::string& name) {
  return nlohmann::json::parse(read_file(std::string(LOCKSTEP_GOLDENS) + "/" + name));
}

class Problem {
 public:
  explicit Problem(torch::ScalarType dtype) : dtype_(dtype) {
    add("weight", {3, 5});
    add("bias", {7});
    add("scale", {1});
  }

  const NamedTensors& parameters() const { return parameters_; }

  // Adds gradients to the existing ones, as backward() does.
  void add_grads(int step) {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      torch::Tensor& parameter = parameters_[index].second;
      std::vector<double> values(parameter.numel());
      for (int i = 0; i < static_cast<int>(values.size()); ++i) {
        const int number = (7 * i + 13 * step + step * step + 5 * static_cast<int>(index)) % 17 - 8;
        values[i] = number / static_cast<double>(1 << (3 + i % 4));
      }
      parameter.mutable_grad().add_(tensor_of(values, parameter.sizes()));
    }
  }

  torch::Tensor weights() const {
    std::vector<torch::Tensor> flat;
    for (const auto& [name, parameter] : parameters_) flat.push_back(parameter.detach().flatten());
    return torch::cat(flat);
  }

 private:
  torch::Tensor tensor_of(const std::vector<double>& values, at::IntArrayRef shape) const {
    return torch::tensor(values, torch::kFloat64).to(dtype_).reshape(shape).clone();
  }

  void add(const std::string& name, at::IntArrayRef shape) {
    std::vector<double> values(c10::multiply_integers(shape));
    const int index = static_cast<int>(parameters_.size());
    for (int i = 0; i < static_cast<int>(values.size()); ++i) {
      values[i] = ((5 * i + 3 * index + 3) % 11 - 5) / 8.0;
    }
    parameters_.emplace_back(name, tensor_of(values, shape).requires_grad_());
  }

  torch::ScalarType dtype_;
  NamedTensors parameters_;
};

// A problem with its flat parameters and optimizer.
struct Training {
  Training(const OptimizerSpec& spec, torch::ScalarType dtype)
      : problem(dtype), flat(problem.parameters()), optimizer(spec.make(flat)) {}

  void run(int first, int last) {
    for (int step = first; step <= last; ++step) {
      problem.add_grads(step);
      optimizer->step();
    }
  }

  Problem problem;
  FlatParameters flat;
  std::unique_ptr<Optimizer> optimizer;
};

inline void expect_close(const torch::Tensor& actual, const std::vector<double>& expected,
                         double tolerance) {
  ASSERT_EQ(actual.numel(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = actual[static_cast<std::int64_t>(i)].item<double>();
    EXPECT_LE(std::abs(value - expected[i]), tolerance * (std::abs(expected[i]) + 0.05))
        << "element " << i << ": " << value << " and " << expected[i];
  }
}

inline void expect_same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  ASSERT_EQ(a.nbytes(), b.nbytes());
  EXPECT_TRUE(torch::equal(a, b)) << a << b;
}

// Checks all cases of this optimizer in the golden file, in float64 and float32. PyTorch fuses some
// multiply-adds and we do not. Each step therefore differs by a few units in the last place of its
// update. These differences are not amplified, so 64 of them stay below 32 units in the last place
// of a parameter.
inline void expect_golden(const std::string& name,
                          const std::function<OptimizerSpec(const nlohmann::json&)>& parse) {
  const nlohmann::json golden = load_golden("optim_optimizers.json");
  int cases = 0;
  for (const auto& item : golden["cases"]) {
    if (item["name"] != name) continue;
    ++cases;
    for (const auto& [dtype, key, tolerance] : {std::tuple(torch::kFloat64, "float64", 1e-12),
                                                std::tuple(torch::kFloat32, "float32", 2e-6)}) {
      SCOPED_TRACE(name + item["options"].dump() + key);
      Training training(parse(item["options"]), dtype);
      int done = 0;
      for (std::size_t i = 0; i < golden["recorded"].size(); ++i) {
        training.run(done + 1, golden["recorded"][i]);
        done = golden["recorded"][i];
        expect_close(training.problem.weights(), item[key][i].get<std::vector<double>>(),
                     tolerance);
      }
    }
  }
  EXPECT_GE(cases, 2) << "in the golden file for " << name;
}

// A run that is stopped after 9 steps and resumed by another optimizer, made with `other` options,
// has the same bits.
inline void expect_resumes(const OptimizerSpec& spec, const OptimizerSpec& other) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    Training straight(spec, dtype);
    straight.run(1, 9);
    const StateDict state = straight.optimizer->state();
    const torch::Tensor weights = straight.problem.weights();
    straight.run(10, 30);  // would show if the state were not a copy

    Training resumed(other, dtype);
    resumed.run(1, 2);
    torch::NoGradGuard no_grad;
    std::int64_t offset = 0;
    for (const auto& [name, parameter] : resumed.problem.parameters()) {
      parameter.copy_(weights.narrow(0, offset, parameter.numel()).reshape(parameter.sizes()));
      offset += parameter.numel();
    }
    resumed.optimizer->load_state(state);
    resumed.run(10, 30);
    expect_same_bits(resumed.problem.weights(), straight.problem.weights());
    EXPECT_EQ(resumed.optimizer->lr(), straight.optimizer->lr());
    EXPECT_EQ(resumed.optimizer->momentum(), straight.optimizer->momentum());
  }
}

template <typename E, typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The error message when an optimizer is made with these options.
inline std::string config_error(const OptimizerSpec& spec) {
  return message_of<ConfigError>([&] { Training(spec, torch::kFloat32); });
}

}  // namespace lockstep::optim::testing
