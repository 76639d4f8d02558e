#include "lockstep/optim/scheduler.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/optim/chained_scheduler.h"
#include "lockstep/optim/cyclic.h"
#include "lockstep/optim/function_scheduler.h"
#include "lockstep/optim/one_cycle.h"
#include "lockstep/optim/plateau.h"
#include "lockstep/optim/sequential_scheduler.h"

namespace lockstep::optim {
namespace {

struct MakeScheduler {
  Optimizer& optimizer;
  const ScheduleContext& context;

  std::unique_ptr<Scheduler> operator()(std::monostate) const {
    throw ConfigError("scheduler: expected one, got none");
  }

  std::unique_ptr<Scheduler> operator()(const SchedulerSpec::Factory& factory) const {
    auto scheduler = factory(optimizer, context);
    if (scheduler == nullptr) {
      throw ConfigError("scheduler: expected a function that makes one, it returned null");
    }
    return scheduler;
  }

  std::unique_ptr<Scheduler> operator()(const SchedulerSpec::SequentialPtr& options) const {
    return make_scheduler(*options, optimizer, context);
  }

  template <typename Options>
  std::unique_ptr<Scheduler> operator()(const Options& options) const {
    return make_scheduler(options, optimizer, context);
  }
};

}  // namespace

std::string Scheduler::describe() const {
  OptionText text;
  text.with("per", per() == Per::kEpoch ? "epoch" : "batch");
  for (const auto& [key, value] : state()) {
    if (key == "name") continue;
    if (const auto* number = value.get_if<double>()) text.with(key, *number);
    if (const auto* number = value.get_if<std::int64_t>()) text.with(key, *number);
    if (const auto* flag = value.get_if<bool>()) text.with(key, *flag);
    if (const auto* word = value.get_if<std::string>()) text.with(key, *word);
  }
  return fmt::format("{}({})", name(), text.str());
}

SchedulerSpec::SchedulerSpec(const SequentialLR& options)
    : choice_(std::make_shared<const SequentialLR>(options)) {}

SchedulerSpec chain(std::vector<SchedulerSpec> schedulers, std::vector<std::int64_t> milestones) {
  return SequentialLR{.schedulers = std::move(schedulers), .milestones = std::move(milestones)};
}

SchedulerSpec warmup(std::int64_t steps, SchedulerSpec then, const WarmupOptions& options) {
  const LinearLR rise{
      .start_factor = options.start_factor, .total_iters = steps, .per = options.per};
  if (!then) return rise;
  return chain({rise, std::move(then)}, {steps});
}

std::unique_ptr<Scheduler> SchedulerSpec::make(Optimizer& optimizer,
                                               const ScheduleContext& context) const {
  return std::visit(MakeScheduler{optimizer, context}, choice_);
}

}  // namespace lockstep::optim
