// SequentialLR: one scheduler after the other.
#pragma once

#include <memory>

#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

// Throws ConfigError if the milestones do not fit the schedulers. make_scheduler() calls it, and
// checks the schedulers, too.
void check_chain(const SequentialLR& options);

std::unique_ptr<Scheduler> make_scheduler(const SequentialLR& options, Optimizer& optimizer,
                                          const ScheduleContext& context);

}  // namespace lockstep::optim
