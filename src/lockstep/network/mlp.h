// A multilayer perceptron, as a Sequential, because Lockstep computes a Sequential of linear layers
// and ReLU as one operation (docs/decisions/speed.md).
//
//   ls::Model model = ls::network::make_mlp({.in = 784, .hidden = {512, 256}, .out = 10});
#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

namespace lockstep::network {

enum class Activation { kReLU, kGELU, kTanh };

struct MLPOptions {
  std::int64_t in = 1;                      // numbers per sample
  std::vector<std::int64_t> hidden = {64};  // widths of the hidden layers
  std::int64_t out = 1;                     // numbers per sample of the output
  Activation activation = Activation::kReLU;
  double dropout = 0.0;  // after each activation
};

// Flatten, then for each hidden layer Linear, activation and, if it is not 0, dropout, and a last
// Linear. The names of parameters are those of Python's nn.Sequential of these layers ("1.weight").
// Throws ConfigError if an option is wrong.
torch::nn::Sequential make_mlp(const MLPOptions& options);

}  // namespace lockstep::network
