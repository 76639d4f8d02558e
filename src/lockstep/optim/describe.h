// Optimizers and schedulers in words, with all their numbers: for comparing what the ranks of a run
// were told, and for messages.
#pragma once

#include <string>

#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/scheduler.h"

namespace lockstep::optim {

// "SGD(lr=0.1, momentum=0.9, …)", with the settings of single parameters; "none" for nothing. Two
// that differ in a number have different texts. Of a torch optimizer these are its name and its
// groups' learning rates; a function that makes one is not called, and is only named.
std::string describe(const OptimizerSpec& optimizer);
std::string describe(const SchedulerSpec& scheduler);

}  // namespace lockstep::optim
