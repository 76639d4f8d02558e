#include "lockstep/optim/lion.h"

#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class LionOptimizer final : public TableOptimizer<LionOptimizer, Lion> {
 public:
  LionOptimizer(const Lion& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"exp_avg"}) {}

  static void check_options(const Check& check, const Lion& options) {
    check.decay("beta1", options.beta1);
    check.decay("beta2", options.beta2);
  }

 private:
  void update(const GradientUse& gradient) override {
    apply_to_all(common(), [&](const Rates& rates) {
      return LionUpdate{
          .gradient = gradient,
          .lr = rates.lr,
          .beta1 = options().beta1,
          .beta2 = options().beta2,
          .shrink = 1.0 - rates.lr * rates.weight_decay,
      };
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lion& options, FlatParameters& parameters) {
  return std::make_unique<LionOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
