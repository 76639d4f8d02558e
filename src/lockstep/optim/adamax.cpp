#include "lockstep/optim/adamax.h"

#include <cmath>

#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class AdamaxOptimizer final : public TableOptimizer<AdamaxOptimizer, Adamax> {
 public:
  AdamaxOptimizer(const Adamax& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"exp_avg", "exp_inf"}) {}

  static void check_options(const Check& check, const Adamax& options) {
    check.decay("beta1", options.beta1);
    check.decay("beta2", options.beta2);
    check.positive("eps", options.eps);
  }

 private:
  void update(const GradientUse& gradient) override {
    apply_to_all(common(), [&](const Rates& rates) {
      const auto t = static_cast<double>(rates.step);
      return AdamaxUpdate{
          .gradient = gradient,
          .beta1 = options().beta1,
          .beta2 = options().beta2,
          .eps = options().eps,
          .weight_decay = rates.weight_decay,
          .step_size = rates.lr / (1.0 - std::pow(options().beta1, t)),
      };
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adamax& options, FlatParameters& parameters) {
  return std::make_unique<AdamaxOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
