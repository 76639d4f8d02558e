// Learning rates for another size of a step (TrainOptions::lr_base_batch_size).
#pragma once

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

// The same scheduler, with all learning rates that its options name multiplied by `factor`: max_lr,
// base_lr, eta_min, min_lr. Rates that are given in relation to the optimizer's stay. A scheduler
// that a function makes is not changed; it can read the optimizer's rate.
SchedulerSpec scale_lr(const SchedulerSpec& scheduler, double factor);

// Whether it is a torch optimizer that exists already, also inside of Lookahead.
bool is_made_already(const OptimizerSpec& optimizer);

}  // namespace lockstep::optim
