#include "lockstep/optim/adagrad.h"

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/option_tables.h"

namespace lockstep::optim {
namespace {

Check check_adagrad() {
  return Check("optimizer Adagrad");
}

Adagrad checked(const Adagrad& options) {
  check_adagrad().not_negative("lr", options.lr);
  check_adagrad().not_negative("lr_decay", options.lr_decay);
  check_adagrad().not_negative("weight_decay", options.weight_decay);
  check_adagrad().not_negative("initial_accumulator_value", options.initial_accumulator_value);
  check_adagrad().positive("eps", options.eps);
  return options;
}

class AdagradOptimizer final : public FlatOptimizer {
 public:
  AdagradOptimizer(const Adagrad& options, FlatParameters& parameters)
      : FlatOptimizer(parameters, {"sum"}), options_(checked(options)) {
    use_slot(kSum, options_.initial_accumulator_value);
  }

  std::string name() const override { return "Adagrad"; }

  double lr() const override { return options_.lr; }
  void set_lr(double lr) override {
    check_adagrad().not_negative("lr", lr);
    options_.lr = lr;
  }

 private:
  enum SlotIndex { kSum };

  void update(const GradientUse& gradient) override {
    const Rates common{.lr = options_.lr, .weight_decay = options_.weight_decay};
    apply_to_all(common, [&](const Rates& rates) {
      const auto steps_before = static_cast<double>(rates.step - 1);
      return AdagradUpdate{
          .gradient = gradient,
          .lr = rates.lr / (1.0 + steps_before * options_.lr_decay),
          .eps = options_.eps,
          .weight_decay = rates.weight_decay,
      };
    });
  }

  StateDict hyper_parameters() const override { return fields_to_state(options_); }

  bool has_state_at_once() const override { return true; }

  double initial_in(const StateDict& state, std::size_t) const override {
    return state.get<double>("initial_accumulator_value");
  }

  void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) override {
    const Adagrad options = checked(fields_from_state<Adagrad>(state));
    require_in_use(slots[kSum]);
    options_ = options;
  }

  Adagrad options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adagrad& options, FlatParameters& parameters) {
  return std::make_unique<AdagradOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
