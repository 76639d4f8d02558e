#include "lockstep/optim/radam.h"

#include <cmath>

#include "lockstep/optim/table_optimizer.h"

namespace lockstep::optim {
namespace {

class RAdamOptimizer final : public TableOptimizer<RAdamOptimizer, RAdam> {
 public:
  RAdamOptimizer(const RAdam& options, FlatParameters& parameters)
      : TableOptimizer(options, parameters, {"exp_avg", "exp_avg_sq"}) {}

  static void check_options(const Check& check, const RAdam& options) {
    check.decay("beta1", options.beta1);
    check.decay("beta2", options.beta2);
    check.positive("eps", options.eps);
  }

 private:
  void update(const GradientUse& gradient) override {
    apply_to_all(common(), [&](const Rates& rates) {
      const auto t = static_cast<double>(rates.step);
      const double beta2_t = std::pow(options().beta2, t);
      const double correction2 = 1.0 - beta2_t;
      // The length of a simple mean that has the variance of the running one: at its end, and now.
      const double longest = 2.0 / (1.0 - options().beta2) - 1.0;
      const double length = longest - 2.0 * t * beta2_t / correction2;
      RAdamUpdate update{
          .gradient = gradient,
          .beta1 = options().beta1,
          .beta2 = options().beta2,
          .eps = options().eps,
          .weight_decay = rates.weight_decay,
          .step_size = rates.lr / (1.0 - std::pow(options().beta1, t)),
          .rectified = length > 5.0,
      };
      if (update.rectified) {
        update.step_size *=
            std::sqrt(correction2) * std::sqrt((length - 4.0) * (length - 2.0) * longest /
                                               ((longest - 4.0) * (longest - 2.0) * length));
      }
      return update;
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const RAdam& options, FlatParameters& parameters) {
  return std::make_unique<RAdamOptimizer>(options, parameters);
}

}  // namespace lockstep::optim
