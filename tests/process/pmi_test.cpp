#include "lockstep/process/pmi.h"

#include <array>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/process/process.h"
#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

struct SocketPair {
  SocketPair() {
    std::array<int, 2> ends = {};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw Error("no sockets");
    daemon = FileDescriptor(ends[0]);
    rank = FileDescriptor(ends[1]);
  }
  FileDescriptor daemon, rank;
};

// Hydra's daemon makes a pair of sockets for each rank that it starts, as this test does.
TEST(Pmi, RanksOfOneDaemonHaveOneRunId) {
  const SocketPair first, second;
  const std::string id = pmi_run_id(first.rank.get());
  EXPECT_EQ(id, "pmi-" + std::to_string(::getpid()) + "-" +
                    std::to_string(process_status(::getpid())->start_time));
  RankProcess rank([&] { return pmi_run_id(second.rank.get()) == id ? 0 : 1; });
  EXPECT_EQ(rank.wait(), 0);
  RankProcess other_daemon([&] { return pmi_run_id(SocketPair().rank.get()) == id ? 1 : 0; });
  EXPECT_EQ(other_daemon.wait(), 0);
}

TEST(Pmi, WhatIsNoSocketOfADaemonHasNone) {
  const NumberPipe pipe;
  EXPECT_EQ(pmi_run_id(-1), "");
  EXPECT_EQ(pmi_run_id(STDIN_FILENO), "");
}

}  // namespace
}  // namespace lockstep::process
