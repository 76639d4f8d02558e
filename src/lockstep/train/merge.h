// Combines what each worker of a run has accumulated. All functions are collective.
#pragma once

#include <functional>

#include "lockstep/base/metrics.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/metric/metric.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

// Adds what the other ranks accumulated to rank 0's metric, in the order of the ranks, and resets
// the metric on the other ranks. So all ranks can accumulate more, and nothing is counted twice.
void gather_metric(metric::Metric& metric, comm::Communicator& communicator);

// The metric over the samples of all ranks, on every rank. Calls gather_metric.
Metrics merged(metric::Metric& metric, comm::Communicator& communicator);

// Returns rank 0's value on every rank.
Metrics broadcast(const Metrics& metrics, comm::Communicator& communicator);
StateDict broadcast(const StateDict& state, comm::Communicator& communicator);

// Returns the states of all ranks on rank 0, ordered by rank; returns nothing on the other ranks.
std::vector<StateDict> gather(const StateDict& state, comm::Communicator& communicator);

}  // namespace lockstep
