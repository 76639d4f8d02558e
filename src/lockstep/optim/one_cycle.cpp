#include "lockstep/optim/one_cycle.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/optim/chained_scheduler.h"

namespace lockstep::optim {
namespace {

constexpr const char* kOneCycle = "OneCycleLR";

struct OneCyclePoint {
  double lr = 0.0;
  double momentum = 0.0;
};

struct OneCyclePhase {
  double end_step = 0.0;
  OneCyclePoint start;
  OneCyclePoint end;
};

std::vector<OneCyclePhase> make_phases(const OneCycleLR& options, std::int64_t total_steps) {
  const double max_lr = *options.max_lr;
  const double initial_lr = max_lr / options.div_factor;
  const OneCyclePoint initial{.lr = initial_lr, .momentum = options.max_momentum};
  const OneCyclePoint top{.lr = max_lr, .momentum = options.base_momentum};
  const OneCyclePoint last{.lr = initial_lr / options.final_div_factor,
                           .momentum = options.max_momentum};
  const auto total = static_cast<double>(total_steps);
  const double up = options.pct_start * total;
  if (!options.three_phase) {
    return {{.end_step = up - 1.0, .start = initial, .end = top},
            {.end_step = total - 1.0, .start = top, .end = last}};
  }
  return {{.end_step = up - 1.0, .start = initial, .end = top},
          {.end_step = 2.0 * options.pct_start * total - 2.0, .start = top, .end = initial},
          {.end_step = total - 1.0, .start = initial, .end = last}};
}

class OneCycleScheduler final : public Scheduler {
 public:
  OneCycleScheduler(const OneCycleLR& options, std::int64_t total_steps, Optimizer& optimizer)
      : options_(options),
        total_steps_(total_steps),
        phases_(make_phases(options, total_steps)),
        optimizer_(optimizer) {
    set(point_at(0));
  }

  std::string name() const override { return kOneCycle; }
  Per per() const override { return options_.per; }

  void step(std::optional<double>) override {
    // As in PyTorch, one step after the last update is allowed; the rate stays at its end value.
    if (num_steps_ >= total_steps_) {
      throw Error("scheduler {}: step {} of a cycle of total_steps = {}", kOneCycle, num_steps_ + 1,
                  total_steps_);
    }
    ++num_steps_;
    set(point_at(num_steps_));
  }

  StateDict state() const override {
    return {{"name", name()},
            {"step", num_steps_},
            {"total_steps", total_steps_},
            {"lr", optimizer_.lr()}};
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    const auto total_steps = state.get<std::int64_t>("total_steps");
    if (total_steps != total_steps_) {
      throw CheckpointError(
          "scheduler {}: this cycle has {} steps, the one in the checkpoint has {}; keep "
          "num_epochs, or set total_steps to {}",
          kOneCycle, total_steps_, total_steps, total_steps);
    }
    const auto num_steps = state.get<std::int64_t>("step");
    const auto lr = state.get<double>("lr");
    set({.lr = lr, .momentum = point_at(num_steps).momentum});
    num_steps_ = num_steps;
  }

 private:
  double anneal(double start, double end, double part) const {
    if (options_.anneal == Anneal::kLinear) return (end - start) * part + start;
    return end + (start - end) / 2.0 * (std::cos(std::numbers::pi * part) + 1.0);
  }

  OneCyclePoint point_at(std::int64_t step) const {
    const auto now = static_cast<double>(step);
    double start_step = 0.0;
    std::size_t i = 0;
    for (; i + 1 < phases_.size() && now > phases_[i].end_step; ++i) {
      start_step = phases_[i].end_step;
    }
    const OneCyclePhase& phase = phases_[i];
    const double length = phase.end_step - start_step;
    // A phase without length ends when it starts.
    const double part = length == 0.0 ? 1.0 : std::min(1.0, (now - start_step) / length);
    return {.lr = anneal(phase.start.lr, phase.end.lr, part),
            .momentum = anneal(phase.start.momentum, phase.end.momentum, part)};
  }

  void set(const OneCyclePoint& point) {
    optimizer_.set_lr(point.lr);
    if (options_.cycle_momentum) optimizer_.set_momentum(point.momentum);
  }

  OneCycleLR options_;
  std::int64_t total_steps_;
  std::vector<OneCyclePhase> phases_;
  Optimizer& optimizer_;
  std::int64_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const OneCycleLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context) {
  const Check check(std::string("scheduler ") + kOneCycle);
  check.require(options.max_lr.has_value(), "max_lr", "a number > 0", "none");
  check.positive("max_lr", *options.max_lr);
  check.fraction("pct_start", options.pct_start);
  check.positive("div_factor", options.div_factor);
  check.positive("final_div_factor", options.final_div_factor);
  const std::int64_t total_steps =
      options.total_steps ? *options.total_steps : steps_of_run(kOneCycle, options.per, context);
  check.require(total_steps > 0, "total_steps", "a positive integer", total_steps);
  if (options.cycle_momentum) {
    check.decay("base_momentum", options.base_momentum);
    check.decay("max_momentum", options.max_momentum);
    if (!optimizer.momentum()) {
      throw ConfigError(
          "scheduler {}: cycle_momentum: expected an optimizer with momentum, got {}; set "
          "cycle_momentum to false",
          kOneCycle, optimizer.name());
    }
  }
  return std::make_unique<OneCycleScheduler>(options, total_steps, optimizer);
}

}  // namespace lockstep::optim
