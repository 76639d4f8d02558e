#include "lockstep/optim/nadam.h"

#include <cmath>

#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

// The momentum rises to beta1.
double momentum_at(const NAdam& options, std::int64_t step) {
  return options.beta1 *
         (1.0 - 0.5 * std::pow(0.96, static_cast<double>(step) * options.momentum_decay));
}

// The product of the momenta of all steps. It is computed anew, so that it need not be kept for
// each parameter. Few factors are enough: once it is below half a unit in the last place of 1, 1
// minus the product does not change any more.
double product_of_momenta(const NAdam& options, std::int64_t steps) {
  double product = 1.0;
  for (std::int64_t step = 1; step <= steps && product > 1e-17; ++step) {
    product *= momentum_at(options, step);
  }
  return product;
}

class NAdamOptimizer final : public TableOptimizer<NAdamOptimizer, NAdam> {
 public:
  NAdamOptimizer(const NAdam& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"exp_avg", "exp_avg_sq"}) {}

  static void check_options(const Check& check, const NAdam& options) {
    check.decay("beta1", options.beta1);
    check.decay("beta2", options.beta2);
    check.positive("eps", options.eps);
    check.not_negative("momentum_decay", options.momentum_decay);
  }

 private:
  StateDict torch_counters(std::int64_t steps) const override {
    return {{"step", steps_as_tensor(steps)},
            {"mu_product", torch::full({}, product_of_momenta(options(), steps), torch::kFloat32)}};
  }

  void update(const GradientUse& gradient) override {
    apply_to_all(common(), [&](const Rates& rates) {
      const double next = momentum_at(options(), rates.step + 1);
      const double product = product_of_momenta(options(), rates.step);
      return NAdamUpdate{
          .gradient = gradient,
          .beta1 = options().beta1,
          .beta2 = options().beta2,
          .eps = options().eps,
          .weight_decay = rates.weight_decay,
          .correction = 1.0 - std::pow(options().beta2, static_cast<double>(rates.step)),
          .gradient_size = rates.lr * (1.0 - momentum_at(options(), rates.step)) / (1.0 - product),
          .momentum_size = rates.lr * next / (1.0 - product * next),
      };
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const NAdam& options, FlatParameters& parameters) {
  return std::make_unique<NAdamOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
