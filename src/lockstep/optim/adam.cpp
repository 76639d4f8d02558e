#include "lockstep/optim/adam.h"

#include <cmath>
#include <type_traits>

#include "lockstep/base/check.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/option_tables.h"

namespace lockstep::optim {
namespace {

// Adam and AdamW differ in what weight_decay does.
template <typename Options>
class AdamOptimizer final : public FlatOptimizer {
 public:
  AdamOptimizer(const Options& options, FlatParameters& parameters)
      : FlatOptimizer(parameters, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
        options_(checked(options)) {
    use_slot(kExpAvg);
    use_slot(kExpAvgSq);
    if (options_.amsgrad) use_slot(kMaxExpAvgSq);
  }

  std::string name() const override { return kName; }

  double lr() const override { return options_.lr; }
  void set_lr(double lr) override {
    check().not_negative("lr", lr);
    options_.lr = lr;
  }

  std::optional<double> momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override {
    check().decay("beta1", momentum);
    options_.beta1 = momentum;
  }

 private:
  enum SlotIndex { kExpAvg, kExpAvgSq, kMaxExpAvgSq };
  static constexpr bool kDecoupled = std::is_same_v<Options, AdamW>;
  static constexpr const char* kName = OptionTable<Options>::kName;

  static Check check() { return Check(std::string("optimizer ") + kName); }

  static Options checked(const Options& options) {
    check().not_negative("lr", options.lr);
    check().decay("beta1", options.beta1);
    check().decay("beta2", options.beta2);
    check().positive("eps", options.eps);
    check().not_negative("weight_decay", options.weight_decay);
    return options;
  }

  void update(const GradientUse& gradient) override {
    const Rates common{.lr = options_.lr, .weight_decay = options_.weight_decay};
    apply_to_all(common, [&](const Rates& rates) {
      const auto t = static_cast<double>(rates.step);
      return AdamUpdate{
          .gradient = gradient,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .weight_decay = kDecoupled ? 0.0 : rates.weight_decay,
          .shrink = kDecoupled ? 1.0 - rates.lr * rates.weight_decay : 1.0,
          .step_size = rates.lr / (1.0 - std::pow(options_.beta1, t)),
          .sqrt_correction = std::sqrt(1.0 - std::pow(options_.beta2, t)),
      };
    });
  }

  StateDict hyper_parameters() const override { return fields_to_state(options_); }

  void set_hyper_parameters(const StateDict& state, const std::vector<Slot>& slots) override {
    const Options options = checked(fields_from_state<Options>(state));
    require_in_use(slots[kExpAvg]);
    require_in_use(slots[kExpAvgSq]);
    if (options.amsgrad) require_in_use(slots[kMaxExpAvgSq]);
    options_ = options;
  }

  Options options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adam& options, FlatParameters& parameters) {
  return std::make_unique<AdamOptimizer<Adam>>(options, parameters);
}

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, FlatParameters& parameters) {
  return std::make_unique<AdamOptimizer<AdamW>>(options, parameters);
}

}  // namespace lockstep::optim
