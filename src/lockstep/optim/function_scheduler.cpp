#include "lockstep/optim/function_scheduler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/optim/chained_scheduler.h"

namespace lockstep::optim {
namespace {

constexpr const char* kFunction = "FunctionLR";

class FunctionScheduler final : public Scheduler {
 public:
  FunctionScheduler(const FunctionLR& options, Optimizer& optimizer, const ScheduleContext& context)
      : options_(options), optimizer_(optimizer), context_(context), base_lr_(optimizer.lr()) {
    set_lr();
  }

  std::string name() const override { return kFunction; }
  Per per() const override { return options_.per; }

  // Functions cannot be compared, so a few of their results are.
  std::string describe() const override {
    const std::int64_t steps = context_.steps_until_next.value_or(context_.steps(options_.per));
    std::vector<std::string> factors;
    // Not the last steps: a run may have fewer than it was planned with, and the function may be
    // undefined there.
    for (const std::int64_t step : {std::int64_t{0}, steps / 4, steps / 2, 3 * steps / 4}) {
      const std::int64_t known = std::max<std::int64_t>(step, 0);
      factors.push_back(fmt::format("{}: {}", known, options_.factor(known, context_)));
    }
    return fmt::format("{}({})", kFunction,
                       OptionText()
                           .with("per", options_.per == Per::kEpoch ? "epoch" : "batch")
                           .with("lr", base_lr_)
                           .with("factors", factors)
                           .str());
  }

  void step(std::optional<double>) override {
    ++num_steps_;
    set_lr();
  }

  StateDict state() const override {
    return {{"name", name()}, {"step", num_steps_}, {"base_lr", base_lr_}, {"lr", optimizer_.lr()}};
  }

  void load_state(const StateDict& state) override {
    check_scheduler_name(*this, state);
    const auto num_steps = state.get<std::int64_t>("step");
    base_lr_ = state.get<double>("base_lr");
    num_steps_ = num_steps;
    set_lr();
  }

 private:
  void set_lr() {
    const double factor = options_.factor(num_steps_, context_);
    if (!(factor >= 0.0) || !std::isfinite(factor)) {
      throw ConfigError("scheduler {}: factor({}): expected a number >= 0, got {}", kFunction,
                        num_steps_, factor);
    }
    optimizer_.set_lr(base_lr_ * factor);
  }

  FunctionLR options_;
  Optimizer& optimizer_;
  ScheduleContext context_;
  double base_lr_;
  std::int64_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(const FunctionLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context) {
  Check(std::string("scheduler ") + kFunction)
      .require(options.factor != nullptr, "factor", "a function", "none");
  return std::make_unique<FunctionScheduler>(options, optimizer, context);
}

}  // namespace lockstep::optim
