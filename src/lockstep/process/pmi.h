// The process manager of MPICH and Intel MPI, hydra, as its ranks see it.
#pragma once

#include <string>

namespace lockstep::process {

// Hydra gives its ranks no name of their run. But each rank has a socket to the daemon that started
// all ranks of its host (PMI_FD), and the kernel knows which process made that socket. This returns
// a name made of that process's pid and start time: the same in all ranks of a run on this host,
// and another one in every other run. "" where `fd` is no such socket.
//
// Nothing is sent on the socket: the program may be using MPI itself.
std::string pmi_run_id(int fd);

}  // namespace lockstep::process
