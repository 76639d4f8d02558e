#include "lockstep/optim/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/optim/chained_scheduler.h"

namespace lockstep::optim {
namespace {

constexpr const char* kPlateau = "ReduceLROnPlateau";

class PlateauScheduler final : public Scheduler {
 public:
  PlateauScheduler(const ReduceLROnPlateau& options, Optimizer& optimizer)
      : options_(options), optimizer_(optimizer), minimize_(options.minimize.value_or(true)) {}

  std::string name() const override { return kPlateau; }
  Per per() const override { return options_.per; }
  bool needs_metric() const override { return true; }
  bool needs_direction() const override { return !options_.minimize; }
  void set_minimize(bool minimize) override { minimize_ = minimize; }

  void step(std::optional<double> metric) override {
    if (!metric) throw Error("scheduler {}: step: expected a metric, got none", kPlateau);
    if (is_better(*metric)) {
      best_ = *metric;
      num_bad_ = 0;
    } else {
      ++num_bad_;
    }
    if (cooldown_left_ > 0) {
      --cooldown_left_;
      num_bad_ = 0;
    }
    if (num_bad_ > options_.patience) {
      reduce();
      cooldown_left_ = options_.cooldown;
      num_bad_ = 0;
    }
  }

  StateDict state() const override {
    return {{"name", name()},
            {"best", best_.value_or(worst())},
            {"num_bad", num_bad_},
            {"cooldown_left", cooldown_left_},
            {"lr", optimizer_.lr()}};
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    const auto best = state.get<double>("best");
    const auto num_bad = state.get<std::int64_t>("num_bad");
    const auto cooldown_left = state.get<std::int64_t>("cooldown_left");
    optimizer_.set_lr(state.get<double>("lr"));
    best_ = std::isinf(best) ? std::nullopt : std::optional(best);  // before the first metric
    num_bad_ = num_bad;
    cooldown_left_ = cooldown_left;
  }

 private:
  double worst() const {
    const double infinity = std::numeric_limits<double>::infinity();
    return minimize_ ? infinity : -infinity;
  }

  bool is_better(double metric) const {
    const double best = best_.value_or(worst());
    const double margin = options_.threshold;
    if (minimize_) {
      return metric < (options_.threshold_relative ? best * (1.0 - margin) : best - margin);
    }
    return metric > (options_.threshold_relative ? best * (1.0 + margin) : best + margin);
  }

  void reduce() {
    const double lr = optimizer_.lr();
    const double reduced = std::max(lr * options_.factor, options_.min_lr);
    if (lr - reduced > options_.eps) optimizer_.set_lr(reduced);
  }

  ReduceLROnPlateau options_;
  Optimizer& optimizer_;
  bool minimize_;
  std::optional<double> best_;
  std::int64_t num_bad_ = 0;
  std::int64_t cooldown_left_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const ReduceLROnPlateau& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  const Check check(std::string("scheduler ") + kPlateau);
  check.decay("factor", options.factor);
  check.not_negative("threshold", options.threshold);
  check.not_negative("min_lr", options.min_lr);
  check.not_negative("eps", options.eps);
  check.require(options.patience >= 0, "patience", "an integer >= 0", options.patience);
  check.require(options.cooldown >= 0, "cooldown", "an integer >= 0", options.cooldown);
  return std::make_unique<PlateauScheduler>(options, optimizer);
}

}  // namespace lockstep::optim
