// OneCycleLR: a warm-up, a peak and a long decrease, in one cycle over the run.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

std::unique_ptr<Scheduler> make_scheduler(const OneCycleLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

}  // namespace lockstep::optim
