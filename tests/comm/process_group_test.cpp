#include "lockstep/comm/process_group.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/comm/rendezvous_session.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/shared.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ProcessGroup, GlooIsThereAndFindsItsRanksAtTheMeetingPlace) {
  EXPECT_THAT(available_backends(), Contains("gloo"));
  run_ranks(2, [](process::HostGroup& host_group) {
    Shared shared(host_group);
    const RendezvousSession session = meet_through(shared, {.answer = kLimit});
    const auto store = c10::make_intrusive<RendezvousStore>(session.rendezvous, "test/", kLimit);
    const auto group = make_process_group(store, {.backend = "gloo",
                                                  .address = "127.0.0.1",
                                                  .rank = host_group.rank(),
                                                  .size = 2,
                                                  .timeout = kLimit});
    std::vector<torch::Tensor> tensors{torch::full({3}, host_group.rank() + 1.0F)};
    group->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors[0].equal(torch::full({3}, 3.0F)));
    shared.barrier();
  });
}

// For every thread of this process: whether SIGPIPE is not blocked in it, so that writing to a
// closed connection would kill the process.
std::map<std::string, bool> threads_that_broken_pipes_kill() {
  std::map<std::string, bool> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::strtoull(line.c_str() + 7, nullptr, 16);
      threads[task.path()] = (blocked >> (SIGPIPE - 1) & 1) == 0;
    }
  }
  return threads;
}

TEST(ProcessGroup, ThePeersDeathDoesNotKillUs) {
  run_ranks(2, [](process::HostGroup& host_group) {
    Shared shared(host_group);
    const RendezvousSession session = meet_through(shared, {.answer = kLimit});
    const auto before = threads_that_broken_pipes_kill();
    const auto store = c10::make_intrusive<RendezvousStore>(session.rendezvous, "test/", kLimit);
    const auto group = make_process_group(
        store, {.address = "127.0.0.1", .rank = host_group.rank(), .size = 2, .timeout = kLimit});
    const auto after = threads_that_broken_pipes_kill();
    EXPECT_GT(after.size(), before.size());
    for (const auto& [thread, dies] : after) {
      const auto known = before.find(thread);
      EXPECT_EQ(dies, known != before.end() && known->second) << thread;
    }
    shared.barrier();
  });
}

TEST(ProcessGroup, ABackendThatIsNotThereIsRefusedWithThoseThatAre) {
  EXPECT_THAT(message_of<ConfigError>([] {
                make_process_group(c10::make_intrusive<c10d::HashStore>(), {.backend = "glue"});
              }),
              AllOf(HasSubstr("expected gloo"), HasSubstr("got 'glue'")));
}

}  // namespace
}  // namespace lockstep::comm
