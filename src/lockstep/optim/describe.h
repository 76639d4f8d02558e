// Optimizers and schedulers as text, with all their numbers: for comparing the options of the ranks
// of a run, and for messages.
#pragma once

#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

// "SGD(lr=0.1, momentum=0.9, …)", with the settings of single parameters; "none" for nothing. Two
// that differ in a number have different texts, also if they are torch optimizers. A function is
// not called, and the text only says that it is one: see Optimizer::describe() of the optimizer
// that it makes.
std::string describe(const OptimizerSpec& optimizer);
std::string describe(const SchedulerSpec& scheduler);

// " with *.bias(lr=0.5, weight_decay=none)", one after the other; empty for no settings.
std::string describe(const std::vector<ParameterSettings>& settings);

}  // namespace lockstep::optim
