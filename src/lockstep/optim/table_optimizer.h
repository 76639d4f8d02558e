// The part that fused optimizers have in common if all their options are in an OptionTable and all
// their slots are always in use.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/option_tables.h"

namespace lockstep::optim {

template <typename Options>
concept HasBeta1 = requires(Options options) {
  options.beta1;
};

// `Derived` has static void check_options(const Check&, const Options&), which throws ConfigError
// for a value out of its range.
template <typename Derived, typename Options>
class TableOptimizer : public FlatOptimizer {
 public:
  std::string name() const final { return OptionTable<Options>::kName; }

  double lr() const final { return options_.lr; }
  void set_lr(double lr) final {
    check().not_negative("lr", lr);
    options_.lr = lr;
  }

  std::optional<double> momentum() const final {
    if constexpr (HasBeta1<Options>) return options_.beta1;
    return std::nullopt;
  }
  void set_momentum(double momentum) final {
    if constexpr (HasBeta1<Options>) {
      check().decay("beta1", momentum);
      options_.beta1 = momentum;
    } else {
      Optimizer::set_momentum(momentum);
    }
  }

 protected:
  TableOptimizer(const Options& options, FlatParameters& parameters,
                 const std::vector<std::string>& slot_names)
      : FlatOptimizer(parameters, slot_names), options_(checked(options)) {
    for (std::size_t slot = 0; slot < slot_names.size(); ++slot) use_slot(slot);
  }

  const Options& options() const { return options_; }
  Rates common() const { return {.lr = options_.lr, .weight_decay = options_.weight_decay}; }

 private:
  static Check check() { return Check(std::string("optimizer ") + OptionTable<Options>::kName); }

  static Options checked(const Options& options) {
    check().not_negative("lr", options.lr);
    check().not_negative("weight_decay", options.weight_decay);
    Derived::check_options(check(), options);
    return options;
  }

  StateDict hyper_parameters() const final { return fields_to_state(options_); }

  void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) final {
    const Options options = checked(fields_from_state<Options>(state));
    for (const Slot& slot : slots) require_in_use(slot);
    options_ = options;
  }

  Options options_;
};

}  // namespace lockstep::optim
