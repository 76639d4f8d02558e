// FunctionLR: a function of the user gives the learning rate.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

std::unique_ptr<Scheduler> make_scheduler(const FunctionLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

}  // namespace lockstep::optim
