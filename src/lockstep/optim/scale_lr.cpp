#include "lockstep/optim/scale_lr.h"

#include <variant>

namespace lockstep::optim {
namespace {

struct ScaleRates {
  double factor;

  SchedulerSpec operator()(std::monostate) const { return {}; }
  SchedulerSpec operator()(CosineAnnealingLR options) const {
    options.eta_min *= factor;
    return options;
  }
  SchedulerSpec operator()(CosineAnnealingWarmRestarts options) const {
    options.eta_min *= factor;
    return options;
  }
  SchedulerSpec operator()(OneCycleLR options) const {
    if (options.max_lr) *options.max_lr *= factor;
    return options;
  }
  SchedulerSpec operator()(CyclicLR options) const {
    if (options.base_lr) *options.base_lr *= factor;
    if (options.max_lr) *options.max_lr *= factor;
    return options;
  }
  SchedulerSpec operator()(ReduceLROnPlateau options) const {
    options.min_lr *= factor;
    return options;
  }
  SchedulerSpec operator()(const SchedulerSpec::SequentialPtr& options) const {
    SequentialLR scaled = *options;
    for (SchedulerSpec& part : scaled.schedulers) part = scale_lr(part, factor);
    return scaled;
  }
  // These name no rate.
  SchedulerSpec operator()(const StepLR& options) const { return options; }
  SchedulerSpec operator()(const MultiStepLR& options) const { return options; }
  SchedulerSpec operator()(const ExponentialLR& options) const { return options; }
  SchedulerSpec operator()(const LinearLR& options) const { return options; }
  SchedulerSpec operator()(const PolynomialLR& options) const { return options; }
  SchedulerSpec operator()(const FunctionLR& options) const { return options; }
  SchedulerSpec operator()(const SchedulerSpec::Factory& factory) const { return factory; }
};

}  // namespace

SchedulerSpec scale_lr(const SchedulerSpec& scheduler, double factor) {
  return std::visit(ScaleRates{factor}, scheduler.choice());
}

bool is_made_already(const OptimizerSpec& optimizer) {
  if (std::holds_alternative<OptimizerSpec::TorchOptimizer>(optimizer.choice())) return true;
  const auto* const around = std::get_if<OptimizerSpec::LookaheadPtr>(&optimizer.choice());
  return around != nullptr && is_made_already((*around)->optimizer);
}

}  // namespace lockstep::optim
