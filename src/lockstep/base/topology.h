// The place of this process among the processes that train together.
#pragma once

namespace lockstep {

struct Topology {
  int rank = 0;        // among all processes, 0 to world_size - 1
  int world_size = 1;  // number of processes on all hosts
  int local_rank = 0;  // among the processes of this host, 0 to local_size - 1
  int local_size = 1;  // processes on this host

  bool is_primary() const { return rank == 0; }
};

}  // namespace lockstep
