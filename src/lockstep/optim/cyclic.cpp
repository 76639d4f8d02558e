#include "lockstep/optim/cyclic.h"

#include <cmath>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/optim/chained_scheduler.h"

namespace lockstep::optim {
namespace {

constexpr const char* kCyclic = "CyclicLR";

// The options without defaults that depend on others.
struct CyclicPlan {
  double base_lr = 0.0;
  double max_lr = 0.0;
  double up = 0.0;     // steps
  double total = 0.0;  // steps of a cycle
};

class CyclicScheduler final : public Scheduler {
 public:
  CyclicScheduler(const CyclicLR& options, const CyclicPlan& plan, Optimizer& optimizer)
      : options_(options), plan_(plan), optimizer_(optimizer) {
    set();
  }

  std::string name() const override { return kCyclic; }
  Per per() const override { return options_.per; }

  void step(std::optional<double>) override {
    ++num_steps_;
    set();
  }

  StateDict state() const override {
    return {{"name", name()},           {"step", num_steps_},
            {"base_lr", plan_.base_lr}, {"max_lr", plan_.max_lr},
            {"step_size_up", plan_.up}, {"step_size_down", plan_.total - plan_.up},
            {"lr", optimizer_.lr()}};
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    for (const auto& [key, here] :
         {std::pair("step_size_up", plan_.up), std::pair("step_size_down", plan_.total - plan_.up),
          std::pair("max_lr", plan_.max_lr)}) {
      const auto found = state.get<double>(key);
      if (found == here) continue;
      throw CheckpointError("scheduler {}: {} is {}, in the checkpoint it is {}; keep it", kCyclic,
                            key, here, found);
    }
    const auto num_steps = state.get<std::int64_t>("step");
    plan_.base_lr = state.get<double>("base_lr");
    num_steps_ = num_steps;
    set();
  }

 private:
  // The height of a cycle, and the place in it, in PyTorch's order of operations.
  double factor() const {
    const auto step = static_cast<double>(num_steps_);
    const double cycle = std::floor(1.0 + step / plan_.total);
    const double x = 1.0 + step / plan_.total - cycle;
    const double ratio = plan_.up / plan_.total;
    const double place = x <= ratio ? x / ratio : (x - 1.0) / (ratio - 1.0);
    if (options_.mode == CycleMode::kTriangular2) return place / std::pow(2.0, cycle - 1.0);
    if (options_.mode == CycleMode::kExpRange) return place * std::pow(options_.gamma, step);
    return place;
  }

  void set() {
    const double height = factor();
    optimizer_.set_lr(plan_.base_lr + (plan_.max_lr - plan_.base_lr) * height);
    if (!options_.cycle_momentum) return;
    optimizer_.set_momentum(options_.max_momentum -
                            (options_.max_momentum - options_.base_momentum) * height);
  }

  CyclicLR options_;
  CyclicPlan plan_;
  Optimizer& optimizer_;
  std::int64_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const CyclicLR& options, Optimizer& optimizer,
                                          const ScheduleContext&) {
  const Check check(std::string("scheduler ") + kCyclic);
  check.require(options.max_lr.has_value(), "max_lr", "a number > 0", "none");
  check.positive("max_lr", *options.max_lr);
  const double base_lr = options.base_lr.value_or(optimizer.lr());
  check.not_negative("base_lr", base_lr);
  check.require(base_lr <= *options.max_lr, "max_lr",
                fmt::format("a number >= base_lr, which is {}", base_lr), *options.max_lr);
  check.count("step_size_up", options.step_size_up);
  const std::int64_t down = options.step_size_down.value_or(options.step_size_up);
  check.count("step_size_down", down);
  check.positive("gamma", options.gamma);
  check.require(options.gamma <= 1.0, "gamma", "a number in (0, 1]", options.gamma);
  if (options.cycle_momentum) {
    check.decay("base_momentum", options.base_momentum);
    check.decay("max_momentum", options.max_momentum);
    if (!optimizer.momentum()) {
      throw ConfigError(
          "scheduler {}: cycle_momentum: expected an optimizer with momentum, got {}; set "
          "cycle_momentum to false",
          kCyclic, optimizer.name());
    }
  }
  const CyclicPlan plan{.base_lr = base_lr,
                        .max_lr = *options.max_lr,
                        .up = static_cast<double>(options.step_size_up),
                        .total = static_cast<double>(options.step_size_up + down)};
  return std::make_unique<CyclicScheduler>(options, plan, optimizer);
}

}  // namespace lockstep::optim
