#include "lockstep/optim/rmsprop.h"

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/option_tables.h"

namespace lockstep::optim {
namespace {

Check check_rmsprop() {
  return Check("optimizer RMSprop");
}

RMSprop checked(const RMSprop& options) {
  check_rmsprop().not_negative("lr", options.lr);
  check_rmsprop().decay("alpha", options.alpha);
  check_rmsprop().positive("eps", options.eps);
  check_rmsprop().not_negative("weight_decay", options.weight_decay);
  check_rmsprop().not_negative("momentum", options.momentum);
  return options;
}

class RMSpropOptimizer final : public FlatOptimizer {
 public:
  RMSpropOptimizer(const RMSprop& options, FlatParameters& parameters)
      : FlatOptimizer(parameters, {"square_avg", "grad_avg", "momentum_buffer"}),
        options_(checked(options)) {
    use_slot(kSquareAvg);
    if (options_.centered) use_slot(kGradAvg);
  }

  std::string name() const override { return "RMSprop"; }

  double lr() const override { return options_.lr; }
  void set_lr(double lr) override {
    check_rmsprop().not_negative("lr", lr);
    options_.lr = lr;
  }

  std::optional<double> momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override {
    check_rmsprop().not_negative("momentum", momentum);
    options_.momentum = momentum;
  }

 private:
  enum SlotIndex { kSquareAvg, kGradAvg, kMomentumBuffer };

  void update(const GradientUse& gradient) override {
    // A scheduler may set a momentum later.
    if (options_.momentum != 0.0 && !in_use(kMomentumBuffer)) use_slot(kMomentumBuffer);
    const Rates common{.lr = options_.lr, .weight_decay = options_.weight_decay};
    apply_to_all(common, [&](const Rates& rates) {
      return RMSpropUpdate{
          .gradient = gradient,
          .lr = rates.lr,
          .alpha = options_.alpha,
          .eps = options_.eps,
          .weight_decay = rates.weight_decay,
          .momentum = options_.momentum,
      };
    });
  }

  StateDict hyper_parameters() const override { return fields_to_state(options_); }

  void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) override {
    const RMSprop options = checked(fields_from_state<RMSprop>(state));
    require_in_use(slots[kSquareAvg]);
    if (options.centered) require_in_use(slots[kGradAvg]);
    options_ = options;
  }

  RMSprop options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const RMSprop& options, FlatParameters& parameters) {
  return std::make_unique<RMSpropOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
