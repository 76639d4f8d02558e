#include "lockstep/process/process.h"

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

// Checks `holds` in a new process that has no descriptor left for a pidfd or /proc.
int without_descriptors(const std::function<bool()>& holds) {
  return RankProcess([&] {
           const rlimit none{.rlim_cur = 0, .rlim_max = 0};
           ::setrlimit(RLIMIT_NOFILE, &none);
           return holds() ? 0 : 1;
         })
      .wait();
}

TEST(Process, StatusTellsTheStateAndTheStart) {
  const auto own = process_status(::getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(own->start_time, 0U);
  const RankProcess other(wait_for_ever);
  const auto started = process_status(other.pid());
  ASSERT_TRUE(started);
  EXPECT_GE(started->start_time, own->start_time);
  other.send(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return process_status(other.pid())->state == 'T'; }));
}

TEST(Process, ThereIsNoStatusOfNoProcess) {
  RankProcess other([] { return 0; });
  const pid_t pid = other.pid();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_FALSE(process_status(pid));
  EXPECT_FALSE(open_pidfd(pid));
  EXPECT_EQ(errno, ESRCH);
}

std::string name_in(const RankProcess& process, const char* file) {
  return read_file(fmt::format("/proc/{}/{}", process.pid(), file));
}

TEST(Process, AProcessCanHaveAName) {
  const std::string words = read_file("/proc/self/cmdline");
  const RankProcess first([] {
    set_process_name("lockstep-rank-3");
    return wait_for_ever();
  });
  EXPECT_TRUE(eventually(
      [&] { return name_in(first, "cmdline") == std::string("lockstep-rank-3") + '\0' + words; }));
  EXPECT_EQ(read_file("/proc/self/cmdline"), words) << "the parent keeps its name";
}

// A template has a name, and its workers get another one.
TEST(Process, AProcessCanHaveASecondName) {
  const std::string words = read_file("/proc/self/cmdline");
  const RankProcess renamed([] {
    set_process_name("lockstep-template");
    set_process_name("lockstep-rank-1234");
    return wait_for_ever();
  });
  EXPECT_TRUE(eventually([&] {
    return name_in(renamed, "cmdline") == std::string("lockstep-rank-1234") + '\0' + words;
  }));
}

TEST(Process, TheCallingThreadHasTheNameToo) {
  const RankProcess named([] {
    set_process_name("lockstep-template");
    return read_file("/proc/thread-self/comm") == "lockstep-templa\n" ? 0 : 1;
  });
  EXPECT_EQ(const_cast<RankProcess&>(named).wait(), 0);
}

TEST(PeerProcess, ItsEndIsSeen) {
  RankProcess other(wait_for_ever);
  const PeerProcess peer(other.pid(), process_status(other.pid())->start_time);
  EXPECT_FALSE(peer.has_ended());
  peer.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return peer.has_ended(); }));  // also as a zombie
  EXPECT_EQ(other.wait(), -SIGKILL);
  EXPECT_TRUE(peer.has_ended());
}

TEST(PeerProcess, AStopIsSeen) {
  const RankProcess other(wait_for_ever);
  const PeerProcess peer(other.pid());
  EXPECT_FALSE(peer.is_stopped());
  other.send(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return peer.is_stopped(); }));
}

// Another process had this pid when the start time was recorded.
TEST(PeerProcess, AnotherProcessWithItsPidIsNotIt) {
  RankProcess other([] {
    ::signal(SIGTERM, SIG_DFL);
    return wait_for_ever();
  });
  const PeerProcess peer(other.pid(), process_status(other.pid())->start_time + 1);
  EXPECT_TRUE(peer.has_ended());
  EXPECT_FALSE(peer.is_stopped());
  peer.send(SIGKILL);
  other.send(SIGTERM);
  EXPECT_EQ(other.wait(), -SIGTERM);
}

TEST(PeerProcess, NeedsNoDescriptor) {
  RankProcess ended([] { return 0; });
  const pid_t gone = ended.pid();
  EXPECT_EQ(ended.wait(), 0);
  const RankProcess running(wait_for_ever);
  EXPECT_EQ(without_descriptors([&] {
              return !open_pidfd(running.pid()) && errno == EMFILE &&
                     !PeerProcess(running.pid()).has_ended() && PeerProcess(gone).has_ended();
            }),
            0);
}

// The PeerProcess is created without a free descriptor, so it has no pidfd and reads /proc later.
TEST(PeerProcess, AZombieHasEndedAlsoWithoutAPidfd) {
  RankProcess other(wait_for_ever);
  RankProcess watcher([&] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const PeerProcess peer(other.pid());
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (peer.has_ended()) return 1;
    peer.send(SIGKILL);
    return eventually([&] { return peer.has_ended(); }) ? 0 : 2;
  });
  EXPECT_EQ(watcher.wait(), 0);
  EXPECT_EQ(other.wait(), -SIGKILL);
}

}  // namespace
}  // namespace lockstep::process
