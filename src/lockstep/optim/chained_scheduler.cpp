#include "lockstep/optim/chained_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

// The values from which the next learning rate is computed.
struct Link {
  std::int64_t step = 0;  // the number of the step that is made now, from 1
  double lr = 0.0;        // the present one
  double base_lr = 0.0;   // the optimizer's when the scheduler was made
};

struct StepRule {
  static constexpr const char* kName = "StepLR";
  std::int64_t step_size;
  double gamma;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const {
    return link.step % step_size == 0 ? link.lr * gamma : link.lr;
  }
};

struct MultiStepRule {
  static constexpr const char* kName = "MultiStepLR";
  std::vector<std::int64_t> milestones;
  double gamma;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const {
    const auto times = std::ranges::count(milestones, link.step);
    return times == 0 ? link.lr : link.lr * std::pow(gamma, static_cast<double>(times));
  }
};

struct ExponentialRule {
  static constexpr const char* kName = "ExponentialLR";
  double gamma;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const { return link.lr * gamma; }
};

struct CosineRule {
  static constexpr const char* kName = "CosineAnnealingLR";
  std::int64_t t_max;
  double eta_min;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const {
    const double period = static_cast<double>(t_max);
    // At the minimum height() is 0, so the rate of the next step cannot be a multiple of it.
    if ((link.step - 1 - t_max) % (2 * t_max) == 0) {
      return link.lr + (link.base_lr - eta_min) * (1.0 - std::cos(std::numbers::pi / period)) / 2.0;
    }
    const auto height = [&](std::int64_t step) {
      return 1.0 + std::cos(std::numbers::pi * static_cast<double>(step) / period);
    };
    return height(link.step) / height(link.step - 1) * (link.lr - eta_min) + eta_min;
  }
};

struct LinearRule {
  static constexpr const char* kName = "LinearLR";
  double start_factor;
  double end_factor;
  std::int64_t total_iters;

  double first_lr(double lr) const { return lr * start_factor; }
  double next_lr(const Link& link) const {
    if (link.step > total_iters) return link.lr;
    const double rise = end_factor - start_factor;
    return link.lr * (1.0 + rise / (static_cast<double>(total_iters) * start_factor +
                                    static_cast<double>(link.step - 1) * rise));
  }
};

struct PolynomialRule {
  static constexpr const char* kName = "PolynomialLR";
  std::int64_t total_iters;
  double power;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const {
    if (link.step > total_iters) return link.lr;
    const auto left = [&](std::int64_t step) {
      return 1.0 - static_cast<double>(step) / static_cast<double>(total_iters);
    };
    return link.lr * std::pow(left(link.step) / left(link.step - 1), power);
  }
};

struct WarmRestartsRule {
  static constexpr const char* kName = "CosineAnnealingWarmRestarts";
  std::int64_t t_0;
  std::int64_t t_mult;
  double eta_min;

  double first_lr(double lr) const { return lr; }
  double next_lr(const Link& link) const {
    std::int64_t step = link.step;  // since the last restart
    std::int64_t length = t_0;
    if (t_mult == 1) {
      step %= length;
    } else {
      while (step >= length) {
        step -= length;
        length *= t_mult;
      }
    }
    const double part = static_cast<double>(step) / static_cast<double>(length);
    return eta_min + (link.base_lr - eta_min) * (1.0 + std::cos(std::numbers::pi * part)) / 2.0;
  }
};

// The length that must be equal in a state and a scheduler; most schedulers have none.
std::optional<std::int64_t> length_of(const CosineRule& rule) {
  return rule.t_max;
}
std::optional<std::int64_t> length_of(const PolynomialRule& rule) {
  return rule.total_iters;
}
std::optional<std::int64_t> length_of(const WarmRestartsRule& rule) {
  return rule.t_0;
}
template <typename Rule>
std::optional<std::int64_t> length_of(const Rule&) {
  return std::nullopt;
}

template <typename Rule>
class ChainedScheduler final : public Scheduler {
 public:
  ChainedScheduler(Rule rule, Per per, Optimizer& optimizer)
      : rule_(std::move(rule)), per_(per), optimizer_(optimizer), base_lr_(optimizer.lr()) {
    optimizer_.set_lr(rule_.first_lr(base_lr_));
  }

  std::string name() const override { return Rule::kName; }
  Per per() const override { return per_; }

  void step(std::optional<double>) override {
    ++num_steps_;
    optimizer_.set_lr(
        rule_.next_lr({.step = num_steps_, .lr = optimizer_.lr(), .base_lr = base_lr_}));
  }

  StateDict state() const override {
    StateDict state{
        {"name", name()}, {"step", num_steps_}, {"base_lr", base_lr_}, {"lr", optimizer_.lr()}};
    if (const auto length = length_of(rule_)) state.set("length", *length);
    return state;
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    if (const auto length = length_of(rule_)) {
      const auto found = state.get<std::int64_t>("length");
      if (found != *length) {
        throw CheckpointError(
            "scheduler {}: this schedule has {} steps, the one in the checkpoint has {}", name(),
            *length, found);
      }
    }
    const auto num_steps = state.get<std::int64_t>("step");
    const auto base_lr = state.get<double>("base_lr");
    optimizer_.set_lr(state.get<double>("lr"));
    num_steps_ = num_steps;
    base_lr_ = base_lr;
  }

 private:
  Rule rule_;
  Per per_;
  Optimizer& optimizer_;
  double base_lr_;
  std::int64_t num_steps_ = 0;
};

template <typename Rule>
std::unique_ptr<Scheduler> chained(Rule rule, Per per, Optimizer& optimizer) {
  return std::make_unique<ChainedScheduler<Rule>>(std::move(rule), per, optimizer);
}

Check check(const char* name) {
  return Check(std::string("scheduler ") + name);
}

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const StepLR& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  const std::int64_t step_size = options.step_size.value_or(0);
  check("StepLR").require(step_size > 0, "step_size", "a positive integer",
                          options.step_size ? std::to_string(step_size) : "none");
  check("StepLR").not_negative("gamma", options.gamma);
  return chained(StepRule{.step_size = step_size, .gamma = options.gamma}, options.per, optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const MultiStepLR& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  check("MultiStepLR").not_negative("gamma", options.gamma);
  for (const std::int64_t milestone : options.milestones) {
    check("MultiStepLR").require(milestone > 0, "milestones", "positive integers", milestone);
  }
  return chained(MultiStepRule{.milestones = options.milestones, .gamma = options.gamma},
                 options.per, optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const ExponentialLR& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  check("ExponentialLR").require(options.gamma.has_value(), "gamma", "a number >= 0", "none");
  check("ExponentialLR").not_negative("gamma", *options.gamma);
  return chained(ExponentialRule{.gamma = *options.gamma}, options.per, optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const CosineAnnealingLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context) {
  const std::int64_t t_max =
      options.t_max ? *options.t_max : steps_of_run("CosineAnnealingLR", options.per, context);
  check("CosineAnnealingLR").require(t_max > 0, "t_max", "a positive integer", t_max);
  check("CosineAnnealingLR").not_negative("eta_min", options.eta_min);
  return chained(CosineRule{.t_max = t_max, .eta_min = options.eta_min}, options.per, optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const LinearLR& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  check("LinearLR").fraction("start_factor", options.start_factor);
  check("LinearLR").positive("start_factor", options.start_factor);  // the chain multiplies by it
  check("LinearLR").fraction("end_factor", options.end_factor);
  check("LinearLR")
      .require(options.total_iters > 0, "total_iters", "a positive integer", options.total_iters);
  return chained(LinearRule{.start_factor = options.start_factor,
                            .end_factor = options.end_factor,
                            .total_iters = options.total_iters},
                 options.per, optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const PolynomialLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context) {
  const std::int64_t total_iters = options.total_iters
                                       ? *options.total_iters
                                       : steps_of_run("PolynomialLR", options.per, context);
  check("PolynomialLR").count("total_iters", total_iters);
  check("PolynomialLR").positive("power", options.power);
  return chained(PolynomialRule{.total_iters = total_iters, .power = options.power}, options.per,
                 optimizer);
}

std::unique_ptr<Scheduler> make_scheduler(const CosineAnnealingWarmRestarts& options,
                                          Optimizer& optimizer, const ScheduleContext&) {
  const Check check_it = check("CosineAnnealingWarmRestarts");
  check_it.require(options.t_0.value_or(0) > 0, "t_0", "a positive integer",
                   options.t_0 ? std::to_string(*options.t_0) : "none");
  check_it.count("t_mult", options.t_mult);
  check_it.not_negative("eta_min", options.eta_min);
  return chained(
      WarmRestartsRule{.t_0 = *options.t_0, .t_mult = options.t_mult, .eta_min = options.eta_min},
      options.per, optimizer);
}

std::int64_t steps_of_run(const std::string& scheduler, Per per, const ScheduleContext& context) {
  const std::int64_t steps = context.steps(per);
  if (steps > 0) return steps;
  if (context.steps_before > 0) {
    throw ConfigError(
        "scheduler {}: the run is over before it begins: it comes after {} updates, and the run "
        "has {}",
        scheduler, context.steps_before, context.steps(Per::kBatch) + context.steps_before);
  }
  throw ConfigError(
      "scheduler {}: expected a run with at least one step, got {} epochs of {} steps", scheduler,
      context.num_epochs, context.steps_per_epoch);
}

void check_scheduler_name(const Scheduler& scheduler, const StateDict& state) {
  const auto found = state.get<std::string>("name");
  if (found != scheduler.name()) {
    throw CheckpointError("scheduler {}: expected its own state, found that of {}",
                          scheduler.name(), found);
  }
}

}  // namespace lockstep::optim
