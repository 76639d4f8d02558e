#include "lockstep/train/interruption.h"

#include <csignal>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/process/interrupt.h"
#include "lockstep/train/state.h"

namespace lockstep {
namespace {

using process::InterruptGuard;

constexpr std::uint64_t vote_of(int signal) {
  return static_cast<std::uint64_t>(signal) << kSignalShift;
}

// The signal with which the run ends; 0 if it goes on.
int interruption_of(const std::vector<std::uint64_t>& votes, const SignalOptions& options) {
  try {
    obey_signals(votes, options);
    return 0;
  } catch (const Interrupted& interrupted) {
    InterruptGuard::release();
    return interrupted.signal_number;
  }
}

TEST(Interruption, ASignalOfAnyRankEndsTheRun) {
  for (const int rank : {0, 1}) {
    EXPECT_EQ(interruption_of({0, vote_of(SIGTERM)}, {.rank = rank}), SIGTERM);
    EXPECT_EQ(interruption_of({vote_of(SIGINT), 0}, {.rank = rank}), SIGINT);
    EXPECT_EQ(interruption_of({1, 2}, {.rank = rank}), 0) << "other requests";
  }
}

TEST(Interruption, IfWorkersAreReplacedOnlyRank0sSignalDoes) {
  for (const int rank : {0, 1}) {
    const SignalOptions options{.rank = rank, .replaces_workers = true};
    EXPECT_EQ(interruption_of({vote_of(SIGTERM), vote_of(SIGTERM)}, options), SIGTERM);
    EXPECT_EQ(interruption_of({vote_of(SIGINT), 0}, options), SIGINT);
    EXPECT_EQ(interruption_of({0, vote_of(SIGINT)}, options), 0);
  }
}

// Runs `body` in a new process. Returns the signal that ended it, or minus the exit code.
int end_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST(Interruption, AWorkerThatAloneHasASigtermWaitsForRank0sAndThenDies) {
  const SignalOptions options{.rank = 1, .replaces_workers = true};
  EXPECT_EQ(end_of([&] {
              InterruptGuard::catch_for_good();
              std::raise(SIGTERM);
              obey_signals({0, signal_vote()}, options);  // it is new
            }),
            0);
  EXPECT_EQ(end_of([&] {
              InterruptGuard::catch_for_good();
              std::raise(SIGTERM);
              std::this_thread::sleep_for(kSignalGrace);
              obey_signals({0, 0}, options);              // gradients wait for a later batch
              obey_signals({0, signal_vote()}, options);  // rank 0 may have voted before
            }),
            0);
  EXPECT_EQ(end_of([&] {
              InterruptGuard::catch_for_good();
              std::raise(SIGTERM);
              std::this_thread::sleep_for(kSignalGrace);
              for (int vote = 0; vote < 2; ++vote) obey_signals({0, signal_vote()}, options);
            }),
            SIGTERM);
  EXPECT_EQ(end_of([&] {
              InterruptGuard::catch_for_good();
              std::raise(SIGINT);
              std::this_thread::sleep_for(kSignalGrace);
              obey_signals({0, signal_vote()}, options);
            }),
            0);
}

}  // namespace
}  // namespace lockstep
