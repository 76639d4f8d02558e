// ReduceLROnPlateau: lowers the learning rate when a metric has stopped improving.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

std::unique_ptr<Scheduler> make_scheduler(const ReduceLROnPlateau& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

}  // namespace lockstep::optim
