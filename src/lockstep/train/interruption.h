// Signals that ranks of a run got, and what the run does about them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace lockstep {

// The signal that is pending on this rank, as a part of its vote. The lower kSignalShift bits are
// free for other requests.
inline constexpr int kSignalShift = 8;
std::uint64_t signal_vote();

// Batch systems signal the processes of a job one after the other. So a worker that has a SIGTERM
// waits this long for that of rank 0.
inline constexpr std::chrono::milliseconds kSignalGrace(300);

struct SignalOptions {
  int rank = 0;                   // this process's
  bool replaces_workers = false;  // a lost worker does not end the run, because it is replaced
};

// Collective: called by all ranks with the votes of all ranks. Throws Interrupted on all of them if
// the run is to end.
//
// A signal of any rank ends the run, unless workers are replaced: then only a signal of rank 0
// does. A worker that alone has a SIGTERM dies of it after kSignalGrace, and is replaced: at the
// second vote after this time, because rank 0 may have voted before. One that alone has a SIGINT
// ignores it, because Ctrl-C reaches rank 0, too.
void obey_signals(const std::vector<std::uint64_t>& votes, const SignalOptions& options);

}  // namespace lockstep
