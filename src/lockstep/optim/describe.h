// Optimizers and schedulers as text, with all their numbers: for comparing the options of the ranks
// of a run, and for messages.
#pragma once

#include <string>

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

// "SGD(lr=0.1, momentum=0.9, …)", with the settings of single parameters; "none" for nothing. Two
// that differ in a number have different texts. The text of a torch optimizer has its name and the
// learning rates of its groups. A function is not called, and the text only says that it is one.
std::string describe(const OptimizerSpec& optimizer);
std::string describe(const SchedulerSpec& scheduler);

}  // namespace lockstep::optim
