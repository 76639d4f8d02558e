#include "lockstep/train/interruption.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "lockstep/process/interrupt.h"
#include "lockstep/train/state.h"

namespace lockstep {

using process::InterruptGuard;

std::uint64_t signal_vote() {
  return static_cast<std::uint64_t>(InterruptGuard::pending()) << kSignalShift;
}

void obey_signals(const std::vector<std::uint64_t>& votes, const SignalOptions& options) {
  std::uint64_t signal = votes.front() >> kSignalShift;
  if (!options.replaces_workers) {
    for (const std::uint64_t vote : votes) signal = std::max(signal, vote >> kSignalShift);
  }
  if (signal != 0) {
    InterruptGuard::take();
    throw Interrupted(static_cast<int>(signal));
  }
  const std::uint64_t own = votes[static_cast<std::size_t>(options.rank)] >> kSignalShift;
  if (own != SIGTERM || InterruptGuard::pending_for() < kSignalGrace) return;
  // It belongs to the process, as the signal does.
  static bool was_old = false;
  if (std::exchange(was_old, true)) InterruptGuard::die_of_pending();
}

}  // namespace lockstep
