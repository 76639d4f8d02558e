#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/torch_optimizer.h"

namespace lockstep::optim {
namespace {

struct Make {
  FlatParameters& parameters;

  std::unique_ptr<Optimizer> operator()(std::monostate) const {
    throw ConfigError("optimizer: expected one, got none");
  }

  std::unique_ptr<Optimizer> operator()(const OptimizerSpec::TorchFactory& factory) const {
    std::vector<torch::Tensor> tensors;
    for (const auto& buffer : parameters.buffers()) {
      for (const auto& slice : buffer.slices) tensors.push_back(slice.parameter);
    }
    return make_optimizer(OptimizerSpec::TorchOptimizer(factory(std::move(tensors))), parameters);
  }

  template <typename Options>
  std::unique_ptr<Optimizer> operator()(const Options& options) const {
    return make_optimizer(options, parameters);
  }
};

}  // namespace

std::unique_ptr<Optimizer> OptimizerSpec::make(FlatParameters& parameters) const {
  if (parameters.buffers().empty()) {
    throw ConfigError("optimizer: the model has no parameter that requires a gradient");
  }
  return std::visit(Make{parameters}, choice_);
}

}  // namespace lockstep::optim
