// Identifies a run of hydra, the process manager of MPICH and Intel MPI, from inside a rank.
#pragma once

#include <string>

namespace lockstep::process {

// Hydra does not tell its ranks a name of the run. But each rank has a socket to the daemon that
// started all ranks of its host (PMI_FD), and the kernel knows which process made that socket. This
// returns a name made of that process's pid and start time. It is the same in all ranks of a run on
// this host, and different in every other run. "" if `fd` is no such socket.
//
// Nothing is sent on the socket: the program may be using MPI itself.
std::string pmi_run_id(int fd);

}  // namespace lockstep::process
