// Targets written short, spelled out, so that documents can be laid over each other and overridden
// by path whichever way they were written.
#pragma once

#include "lockstep/config/node.h"

namespace lockstep::recipe {

// `optimizer: Adam` and `optimizer: {Adam: {lr: 1}}` become `optimizer: {_target_: Adam, lr: 1}`,
// and so wherever a key stands for one target: criterion, scheduler, dataset, … Items of lists
// stay.
void spell_out(config::Node& document);

// What stands in `args` goes to the top level, where it means the same. Throws LocatedError where a
// key is in both.
void lift_args(config::Node& document);

}  // namespace lockstep::recipe
