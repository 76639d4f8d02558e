#include "lockstep/optim/adadelta.h"

#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class AdadeltaOptimizer final : public TableOptimizer<AdadeltaOptimizer, Adadelta> {
 public:
  AdadeltaOptimizer(const Adadelta& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"square_avg", "acc_delta"}) {}

  static void check_options(const Check& check, const Adadelta& options) {
    check.decay("rho", options.rho);
    check.positive("eps", options.eps);
  }

 private:
  void update(const GradientUse& gradient) override {
    apply_to_all(common(), [&](const Rates& rates) {
      return AdadeltaUpdate{
          .gradient = gradient,
          .lr = rates.lr,
          .rho = options().rho,
          .eps = options().eps,
          .weight_decay = rates.weight_decay,
      };
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adadelta& options, FlatParameters& parameters) {
  return std::make_unique<AdadeltaOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
