#include "lockstep/optim/sgd.h"

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/option_tables.h"

namespace lockstep::optim {
namespace {

Check check_sgd() {
  return Check("optimizer SGD");
}

SGD checked(const SGD& options) {
  check_sgd().not_negative("lr", options.lr);
  check_sgd().not_negative("momentum", options.momentum);
  check_sgd().fraction("dampening", options.dampening);
  check_sgd().not_negative("weight_decay", options.weight_decay);
  if (options.nesterov) {
    check_sgd().positive("momentum (with nesterov)", options.momentum);
    check_sgd().require(options.dampening == 0.0, "dampening (with nesterov)", "0",
                        options.dampening);
  }
  return options;
}

class SGDOptimizer final : public FlatOptimizer {
 public:
  SGDOptimizer(const SGD& options, FlatParameters& parameters)
      : FlatOptimizer(parameters, {"momentum_buffer"}), options_(checked(options)) {}

  std::string name() const override { return "SGD"; }

  double lr() const override { return options_.lr; }
  void set_lr(double lr) override {
    check_sgd().not_negative("lr", lr);
    options_.lr = lr;
  }

  std::optional<double> momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override {
    check_sgd().not_negative("momentum", momentum);
    options_.momentum = momentum;
  }

 private:
  enum SlotIndex { kMomentumBuffer };

  void update(const GradientUse& gradient) override {
    // A scheduler may set a momentum later. So the buffer begins with the first step that has
    // momentum, and the part of a parameter begins with the parameter's first step. The gradient of
    // that step is not dampened.
    const bool first = options_.momentum != 0.0 && !in_use(kMomentumBuffer);
    if (first) use_slot(kMomentumBuffer);
    const Rates common{.lr = options_.lr, .weight_decay = options_.weight_decay};
    apply_to_all(common, [&](const Rates& rates) {
      return SGDUpdate{
          .gradient = gradient,
          .lr = rates.lr,
          .weight_decay = rates.weight_decay,
          .momentum = options_.momentum,
          .gain = first || rates.step == 1 ? 1.0 : 1.0 - options_.dampening,
          .nesterov = options_.nesterov,
      };
    });
  }

  // PyTorch's SGD counts no steps. It only matters whether there was one.
  StateDict torch_counters(std::int64_t) const override { return {}; }
  std::int64_t steps_in(const StateDict& parameter) const override {
    if (!parameter.contains("momentum_buffer")) return 0;
    return parameter.at("momentum_buffer").get_if<torch::Tensor>() != nullptr ? 1 : 0;
  }

  StateDict hyper_parameters() const override { return fields_to_state(options_); }

  void set_hyper_parameters(const StateDict& state, const std::vector<Slot>&) override {
    options_ = checked(fields_from_state<SGD>(state));
  }

  SGD options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const SGD& options, FlatParameters& parameters) {
  return std::make_unique<SGDOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
