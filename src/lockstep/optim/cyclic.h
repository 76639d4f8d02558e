// CyclicLR: up and down between two learning rates.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

std::unique_ptr<Scheduler> make_scheduler(const CyclicLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

}  // namespace lockstep::optim
