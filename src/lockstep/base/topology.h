// Which of the processes that train together this one is.
#pragma once

namespace lockstep {

struct Topology {
  int rank = 0;        // among all, 0 to world_size - 1
  int world_size = 1;  // processes altogether
  int local_rank = 0;  // among those of this host
  int local_size = 1;  // processes on this host

  bool is_primary() const { return rank == 0; }
};

}  // namespace lockstep
