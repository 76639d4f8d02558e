#include "lockstep/process/child_process.h"

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/process/process.h"
#include "tests/support/no_pidfd.h"
#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;

// A child that runs `body` and ends with what it returns.
ChildProcess fork_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  return ChildProcess(pid);
}

std::optional<ChildEnd> end_in_time(ChildProcess& child) {
  std::optional<ChildEnd> end;
  eventually([&] { return (end = child.try_reap()).has_value(); });
  return end;
}

enum class Status { kKnown, kUnknown, kEither };

bool fits(const ChildEnd& found, const ChildEnd& expected, Status status) {
  if (!found.known) return status != Status::kKnown && !found.ok();
  return status != Status::kUnknown && found.exit_code == expected.exit_code &&
         found.signal == expected.signal;
}

// Checks what every way to watch a child must do. Returns the line of the check that failed, or 0.
// It runs in a separate process, whose limits and signal actions each test sets.
int behaves(Status status) {
  ChildProcess good = fork_child([] { return 0; });
  ChildProcess bad = fork_child([] { return 3; });
  ChildProcess killed = fork_child(wait_for_ever);
  ChildProcess destroyed = fork_child(wait_for_ever);
  const pid_t destroyed_pid = destroyed.pid();
  if (killed.has_ended() || killed.try_reap()) return __LINE__;
  killed.send(SIGTERM);
  const auto good_end = end_in_time(good), bad_end = end_in_time(bad),
             killed_end = end_in_time(killed);
  if (!good_end || !bad_end || !killed_end) return __LINE__;
  if (good || bad || killed) return __LINE__;
  if (killed.try_reap() || !killed.has_ended()) return __LINE__;
  killed.send(SIGKILL);  // does nothing, because the child was reaped
  killed.send_to_group(SIGKILL);
  destroyed = ChildProcess();
  if (::kill(destroyed_pid, 0) == 0) return __LINE__;
  if (!fits(*good_end, {}, status)) return __LINE__;
  if (!fits(*bad_end, {.exit_code = 3}, status)) return __LINE__;
  if (!fits(*killed_end, {.signal = SIGTERM}, status)) return __LINE__;
  return 0;
}

void let_no_file_be_opened() {
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_NOFILE, &none);
}

TEST(ChildProcess, IsWatchedByAPidfd) {
  EXPECT_EQ(RankProcess([] {
              ChildProcess child = fork_child([] { return 0; });
              pollfd ended{.fd = child.ended_fd(), .events = POLLIN, .revents = 0};
              if (child.ended_fd() < 0 || ::poll(&ended, 1, 10'000) != 1) return __LINE__;
              return behaves(Status::kKnown);
            }).wait(),
            0);
}

TEST(ChildProcess, IsAskedForWhereNoPidfdCanBeHad) {
  EXPECT_EQ(RankProcess([] {
              let_no_file_be_opened();
              if (fork_child([] { return 0; }).ended_fd() >= 0) return __LINE__;
              return behaves(Status::kKnown);
            }).wait(),
            0);
}

TEST(ChildProcess, IsAskedForWhereASeccompProfileForbidsPidfds) {
  EXPECT_EQ(RankProcess([] {
              forbid_pidfd();
              if (fork_child([] { return 0; }).ended_fd() >= 0) return __LINE__;
              return behaves(Status::kKnown);
            }).wait(),
            0);
}

TEST(ChildProcess, ItsEndIsSeenWhereSigchldIsIgnored) {
  for (const bool with_pidfd : {true, false}) {
    EXPECT_EQ(RankProcess([&] {
                ::signal(SIGCHLD, SIG_IGN);
                if (!with_pidfd) let_no_file_be_opened();
                return behaves(Status::kUnknown);
              }).wait(),
              0)
        << "with a pidfd: " << with_pidfd;
  }
}

void reap_everything(int) {
  const int before = errno;
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  errno = before;
}

TEST(ChildProcess, ItsEndIsSeenWhereTheProgramReapsEveryChild) {
  for (const bool with_pidfd : {true, false}) {
    EXPECT_EQ(RankProcess([&] {
                ::signal(SIGCHLD, reap_everything);
                if (!with_pidfd) let_no_file_be_opened();
                return behaves(Status::kEither);  // the handler or ChildProcess may reap first
              }).wait(),
              0)
        << "with a pidfd: " << with_pidfd;
  }
}

TEST(ChildProcess, ItsPidStaysItsOwnUntilItIsReaped) {
  ChildProcess child = fork_child([] { return 0; });
  const pid_t pid = child.pid();
  ASSERT_TRUE(eventually([&] { return child.has_ended(); }));
  EXPECT_EQ(::kill(pid, 0), 0);
  EXPECT_TRUE(child.reap().ok());
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, ASignalToItsGroupReachesItsChildren) {
  const NumberPipe pids;
  ChildProcess leader = fork_child([&] {
    ::setpgid(0, 0);
    const pid_t child = ::fork();
    if (child == 0) wait_for_ever();
    pids.put(child);
    return wait_for_ever();
  });
  const pid_t grandchild = pids.take();
  leader.send_to_group(SIGKILL);
  EXPECT_EQ(leader.reap().signal, SIGKILL);
  const PeerProcess orphan(grandchild);
  EXPECT_TRUE(eventually([&] { return orphan.has_ended(); }));
}

TEST(ChildProcess, OneThatIsDisownedLivesOn) {
  ChildProcess child = fork_child(wait_for_ever);
  const pid_t pid = child.pid();
  child.disown();
  child = ChildProcess();
  EXPECT_EQ(::kill(pid, 0), 0);
  EXPECT_EQ(ChildProcess(pid).pid(), pid);  // the temporary's destructor kills the child
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildEnd, IsToldAsAShellTellsIt) {
  const ChildEnd good, bad{.exit_code = 3}, killed{.signal = SIGKILL}, unknown{.known = false};
  EXPECT_EQ(to_string(good), "ended well");
  EXPECT_EQ(to_string(bad), "exit code 3");
  EXPECT_EQ(to_string(killed), "killed by signal 9 (Killed)");
  EXPECT_EQ(to_string(unknown), "ended, exit status unknown");
  EXPECT_EQ(good.shell_code(), 0);
  EXPECT_EQ(bad.shell_code(), 3);
  EXPECT_EQ(killed.shell_code(), 137);
  EXPECT_EQ(unknown.shell_code(), 1);
  EXPECT_FALSE(unknown.ok());
}

}  // namespace
}  // namespace lockstep::process
