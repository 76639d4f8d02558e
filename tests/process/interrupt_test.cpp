#include "lockstep/process/interrupt.h"

#include <csignal>
#include <functional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::process {
namespace {

TEST(InterruptGuard, KeepsASignalUntilItIsTaken) {
  const InterruptGuard guard;
  EXPECT_EQ(InterruptGuard::pending(), 0);
  std::raise(SIGTERM);
  EXPECT_EQ(InterruptGuard::pending(), SIGTERM);
  InterruptGuard::take();
  EXPECT_EQ(InterruptGuard::pending(), 0);
  InterruptGuard::release();
}

TEST(InterruptGuard, LeavesAHandlerOfTheUsersAlone) {
  static volatile std::sig_atomic_t seen = 0;
  std::signal(SIGINT, [](int) { seen = 1; });
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    EXPECT_EQ(InterruptGuard::pending(), 0);
  }
  EXPECT_EQ(seen, 1);
  std::signal(SIGINT, SIG_DFL);
}

TEST(InterruptGuard, PutsTheDefaultBack) {
  { const InterruptGuard guard; }
  struct sigaction current;
  sigaction(SIGINT, nullptr, &current);
  EXPECT_EQ(current.sa_handler, SIG_DFL);
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

TEST(InterruptGuard, ASignalThatWasNotTakenHasItsUsualEffectAtTheEnd) {
  EXPECT_EQ(end_of([] {
              {
                const InterruptGuard guard;
                std::raise(SIGTERM);
              }
              ::_exit(1);
            }),
            SIGTERM);
}

TEST(InterruptGuard, ASecondSignalEndsTheProcessAtOnce) {
  EXPECT_EQ(end_of([] {
              const InterruptGuard guard;
              std::raise(SIGINT);
              InterruptGuard::take();
              std::raise(SIGINT);
            }),
            SIGINT);
}

// Another process got the signal first and told this process.
TEST(InterruptGuard, ItsOwnSignalMayComeAfterTheInterruptionWasTaken) {
  EXPECT_EQ(end_of([] {
              {
                const InterruptGuard guard;
                InterruptGuard::take();
              }
              std::raise(SIGINT);
              InterruptGuard::release();
            }),
            0);
  EXPECT_EQ(end_of([] {
              {
                const InterruptGuard guard;
                InterruptGuard::take();
                std::raise(SIGINT);
              }
              InterruptGuard::release();
            }),
            0);
}

TEST(InterruptGuard, SignalsDoWhatTheyDoWithoutOneAfterRelease) {
  EXPECT_EQ(end_of([] {
              {
                const InterruptGuard guard;
                InterruptGuard::take();
              }
              InterruptGuard::release();
              std::raise(SIGINT);
            }),
            SIGINT);
}

TEST(InterruptGuard, ForGoodItDiesOfNone) {
  EXPECT_EQ(end_of([] {
              InterruptGuard::catch_for_good();
              std::raise(SIGINT);
              {
                const InterruptGuard guard;
                if (InterruptGuard::pending() != SIGINT) ::_exit(1);
                std::raise(SIGTERM);
              }
              std::raise(SIGTERM);
            }),
            0);
}

TEST(InterruptGuard, ASignalThatWasOnlyNotedCanStillEndTheProcess) {
  EXPECT_EQ(end_of([] {
              InterruptGuard::catch_for_good();
              std::raise(SIGTERM);
              if (InterruptGuard::pending_for() < std::chrono::nanoseconds(0)) ::_exit(1);
              if (InterruptGuard::pending_for() > std::chrono::minutes(1)) ::_exit(2);
              InterruptGuard::die_of_pending();
            }),
            SIGTERM);
}

}  // namespace
}  // namespace lockstep::process
