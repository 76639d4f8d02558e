#include "lockstep/network/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/check.h"

namespace lockstep::network {
namespace {

namespace nn = torch::nn;

void add_activation(nn::Sequential& to, Activation activation) {
  switch (activation) {
    case Activation::kReLU:
      to->push_back(nn::ReLU());
      break;
    case Activation::kGELU:
      to->push_back(nn::GELU());
      break;
    case Activation::kTanh:
      to->push_back(nn::Tanh());
      break;
  }
}

}  // namespace

torch::nn::Sequential make_mlp(const MLPOptions& options) {
  const Check check("MLP");
  check.count("in", options.in);
  for (const std::int64_t width : options.hidden) check.count("hidden", width);
  check.count("out", options.out);
  check.decay("dropout", options.dropout);
  // Layers are made one by one, because each draws its weights when it is made.
  nn::Sequential network;
  network->push_back(nn::Flatten());
  std::int64_t in = options.in;
  for (const std::int64_t width : options.hidden) {
    network->push_back(nn::Linear(in, width));
    add_activation(network, options.activation);
    if (options.dropout > 0) network->push_back(nn::Dropout(options.dropout));
    in = width;
  }
  network->push_back(nn::Linear(in, options.out));
  return network;
}

}  // namespace lockstep::network
