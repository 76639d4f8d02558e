#include "lockstep/launcher/orphan_reaper.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launcher {
namespace {

// Starts a process that does nothing, in a new process group.
pid_t idle_group() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    for (;;) ::pause();
  }
  ::setpgid(pid, pid);
  return pid;
}

// The signal that ended the process within 5 s; 0 if it is still alive then.
int ending_signal(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) return WTERMSIG(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

TEST(OrphanReaper, EndsWhatItWatchesAndNotWhatItForgot) {
  const pid_t watched = idle_group();
  const pid_t forgotten = idle_group();
  {
    OrphanReaper reaper;
    reaper.watch(watched);
    reaper.watch(forgotten);
    reaper.forget(forgotten);
  }
  EXPECT_EQ(ending_signal(watched), SIGKILL);
  EXPECT_EQ(::kill(forgotten, 0), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(forgotten, &status, WNOHANG), 0);
  ::kill(forgotten, SIGKILL);
  ::waitpid(forgotten, &status, 0);
}

TEST(OrphanReaper, EndsThemWhenItsOwnerIsKilled) {
  const pid_t watched = idle_group();
  const pid_t owner = ::fork();
  if (owner == 0) {
    OrphanReaper reaper;
    reaper.watch(watched);
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(owner, &status, 0);
  EXPECT_EQ(ending_signal(watched), SIGKILL);
}

}  // namespace
}  // namespace lockstep::launcher
