// Replaces short forms of targets by the full form, so that documents can be merged and overridden
// by path, whichever form they use.
#pragma once

#include "lockstep/config/node.h"

namespace lockstep::recipe {

// `optimizer: Adam` becomes `optimizer: {_target_: Adam}`, and `optimizer: {Adam: {lr: 1}}` becomes
// `optimizer: {_target_: Adam, lr: 1}`. The same is done for every key that stands for one target:
// criterion, scheduler, dataset, … and for every value of models, criterions, optimizers and
// schedulers. Items of lists are not changed.
void spell_out(config::Node& document);

// Moves the keys of `args` to the top level, where they mean the same. Throws LocatedError if a key
// is in both.
void lift_args(config::Node& document);

}  // namespace lockstep::recipe
