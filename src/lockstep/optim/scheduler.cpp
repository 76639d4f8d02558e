#include "lockstep/optim/scheduler.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/chained_scheduler.h"
#include "lockstep/optim/one_cycle.h"
#include "lockstep/optim/plateau.h"

namespace lockstep::optim {
namespace {

struct MakeScheduler {
  Optimizer& optimizer;
  const ScheduleContext& context;

  std::unique_ptr<Scheduler> operator()(std::monostate) const {
    throw ConfigError("scheduler: expected one, got none");
  }

  template <typename Options>
  std::unique_ptr<Scheduler> operator()(const Options& options) const {
    return make_scheduler(options, optimizer, context);
  }
};

}  // namespace

std::unique_ptr<Scheduler> SchedulerSpec::make(Optimizer& optimizer,
                                               const ScheduleContext& context) const {
  return std::visit(MakeScheduler{optimizer, context}, choice_);
}

}  // namespace lockstep::optim
