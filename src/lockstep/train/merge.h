// What the workers of a run have each for themselves, brought together. All are collective.
#pragma once

#include <functional>

#include "lockstep/base/metrics.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/metric/metric.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

// What the other ranks accumulated is added to rank 0's, in the order of their ranks, and is gone
// on them: accumulating may go on everywhere, nothing is counted twice.
void gather_metric(metric::Metric& metric, comm::Communicator& communicator);

// The metric over all ranks' samples, on every rank. Gathers it.
Metrics merged(metric::Metric& metric, comm::Communicator& communicator);

// Rank 0's, for all.
Metrics broadcast(const Metrics& metrics, comm::Communicator& communicator);
StateDict broadcast(const StateDict& state, comm::Communicator& communicator);

// Every rank's state, on rank 0, by rank; nothing elsewhere.
std::vector<StateDict> gather(const StateDict& state, comm::Communicator& communicator);

}  // namespace lockstep
