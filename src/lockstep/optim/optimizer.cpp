#include "lockstep/optim/optimizer.h"

#include <algorithm>

#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/adamax.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lion.h"
#include "lockstep/optim/lookahead.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/radam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/torch_optimizer.h"

namespace lockstep::optim {
namespace {

struct MakeOptimizer {
  FlatParameters& parameters;
  const std::vector<ParameterSettings>& settings;

  std::unique_ptr<Optimizer> operator()(std::monostate) const {
    throw ConfigError("optimizer: expected one, got none");
  }

  std::unique_ptr<Optimizer> operator()(const OptimizerSpec::TorchFactory& factory) const {
    std::vector<torch::Tensor> tensors;
    for (const auto& buffer : parameters.buffers()) {
      if (!buffer.is_trainable()) continue;
      for (const auto& slice : buffer.slices) tensors.push_back(slice.parameter);
    }
    return make_optimizer(OptimizerSpec::TorchOptimizer(factory(std::move(tensors))), parameters,
                          {.adds_unfrozen = true});
  }

  std::unique_ptr<Optimizer> operator()(const OptimizerSpec::Factory& factory) const {
    auto optimizer = factory(parameters);
    if (optimizer == nullptr) {
      throw ConfigError("optimizer: expected a function that makes one, it returned null");
    }
    return optimizer;
  }

  std::unique_ptr<Optimizer> operator()(const OptimizerSpec::TorchOptimizer& optimizer) const {
    return make_optimizer(optimizer, parameters);
  }

  std::unique_ptr<Optimizer> operator()(const OptimizerSpec::LookaheadPtr& options) const {
    return make_optimizer(*options, parameters);
  }

  template <typename Options>
  std::unique_ptr<Optimizer> operator()(const Options& options) const {
    auto optimizer = make_optimizer(options, parameters);
    dynamic_cast<FlatOptimizer&>(*optimizer).distinguish(settings);
    return optimizer;
  }
};

}  // namespace

void Optimizer::set_momentum(double momentum) {
  throw Error("optimizer {}: it has no momentum that could be set to {}", name(), momentum);
}

OptimizerPace Optimizer::pace() const {
  OptimizerPace now{.lrs = {lr()}};
  if (const auto momentum = this->momentum()) now.momenta.push_back(*momentum);
  return now;
}

void Optimizer::set_pace(const OptimizerPace& pace) {
  const OptimizerPace now = this->pace();
  if (pace.lrs != now.lrs) set_lr(pace.lrs.front());
  if (pace.momenta != now.momenta && !pace.momenta.empty()) set_momentum(pace.momenta.front());
}

std::string Optimizer::describe() const {
  const auto momentum = this->momentum();
  return fmt::format("{}(lr={}{})", name(), lr(),
                     momentum ? fmt::format(", momentum={}", *momentum) : "");
}

void update_each(FlatParameters& parameters, const StepOptions& options,
                 const UpdateParameter& update) {
  const torch::NoGradGuard no_grad;
  parameters.collect_grads();
  for (const auto& buffer : parameters.buffers()) {
    if (!buffer.is_trainable()) continue;
    if (options.grad_scale != 1.0) buffer.grads.mul_(options.grad_scale);
    for (const auto& slice : buffer.slices) {
      if (slice.used) update(slice, slice.grad);
    }
  }
  parameters.mark_updated();
  if (options.zero_grad) parameters.zero_grad();
}

OptimizerSpec::OptimizerSpec(const Lookahead& options)
    : choice_(std::make_shared<const Lookahead>(options)) {}

bool OptimizerSpec::freezes(const std::string& parameter) const {
  if (const auto* const around = std::get_if<LookaheadPtr>(&choice_)) {
    return (*around)->optimizer.freezes(parameter);
  }
  bool frozen = false;
  for (const ParameterSettings& some : settings_) {
    if (some.frozen && matches_pattern(some.names, parameter)) frozen = *some.frozen;
  }
  return frozen;
}

std::unique_ptr<Optimizer> OptimizerSpec::make(FlatParameters& parameters) const {
  if (std::ranges::none_of(parameters.buffers(), &FlatParameters::Buffer::is_trainable)) {
    throw ConfigError("optimizer: the model has no parameter that requires a gradient");
  }
  return std::visit(MakeOptimizer{parameters, settings_}, choice_);
}

}  // namespace lockstep::optim
