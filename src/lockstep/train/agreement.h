// The values that must be the same on all ranks of a run. Forked workers have the same values by
// construction. Processes that a launcher started read their own options, and a difference would
// not fail by itself: with different seeds, for example, some samples are trained on twice and
// others never.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep {

struct Plan;

// Names and values as text, in a fixed order.
using Agreement = std::vector<std::pair<std::string, std::string>>;

// What the ranks of a run must agree on: the options that decide what is trained, the sizes and
// the order of the data, the runner and the callbacks that run on every rank with their
// agreed_options(), the version of the library, and what chooses kernels on this machine. Weights
// are not included, because all ranks begin with rank 0's weights. Replica compares the parameters.
// The optimizers and schedulers that functions make are compared when they exist
// (Loop::TrainingParts).
Agreement agreement_of(const Plan& plan);

// Collective. Throws ConfigError on every rank if the values of one rank differ. The message names
// each difference, with all its values and the ranks that have them. It costs one vote if all ranks
// agree.
void check_agreement(const Agreement& mine, comm::Communicator& communicator);

}  // namespace lockstep
