#include "lockstep/comm/hierarchical.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "lockstep/comm/c10d.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/rendezvous_session.h"
#include "lockstep/comm/shared.h"
#include "tests/comm/collectives.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Hosts = std::vector<std::vector<int>>;
using Clock = std::chrono::steady_clock;

// Ranks of this host that act as ranks of several hosts: the ranks of one such host share memory,
// and the leaders communicate through Gloo.
std::function<void(process::HostGroup&)> by_hosts(const Hosts& hosts,
                                                  const std::function<void(Communicator&)>& body,
                                                  std::chrono::milliseconds timeout = 20s) {
  std::vector<std::shared_ptr<process::HostGroupMemory>> memories;
  for (const auto& ranks : hosts) {
    memories.push_back(std::make_shared<process::HostGroupMemory>(static_cast<int>(ranks.size())));
  }
  return [=](process::HostGroup& all) {
    Shared shared(all);
    const RendezvousSession session = meet_through(shared, {.answer = timeout});
    std::size_t host = 0;
    while (std::ranges::find(hosts[host], all.rank()) == hosts[host].end()) ++host;
    const auto& here = hosts[host];
    const auto local = static_cast<int>(std::ranges::find(here, all.rank()) - here.begin());
    process::HostGroup host_group(memories[host],
                                  {.rank = local, .timeout = timeout, .names = here});
    host_group.join();
    std::unique_ptr<Communicator> inside;
    if (here.size() > 1) {
      inside = std::make_unique<Shared>(host_group);
    } else {
      inside = std::make_unique<Local>();
    }
    std::unique_ptr<Communicator> leaders;
    if (local == 0) {
      std::vector<int> ranks;
      for (const auto& other : hosts) ranks.push_back(other.front());
      leaders = std::make_unique<C10d>(
          C10dOptions{.topology = {.rank = static_cast<int>(host),
                                   .world_size = static_cast<int>(hosts.size())},
                      .group = "leaders",
                      .timeout = timeout},
          session.rendezvous, ranks);
    }
    Hierarchical comm({.topology = {.rank = all.rank(),
                                    .world_size = all.size(),
                                    .local_rank = local,
                                    .local_size = static_cast<int>(here.size())},
                       .hosts = hosts},
                      std::move(inside), std::move(leaders));
    body(comm);
  };
}

class Layouts : public ::testing::TestWithParam<Hosts> {};
INSTANTIATE_TEST_SUITE_P(Hierarchical, Layouts,
                         ::testing::Values(Hosts{{0, 1}, {2, 3}}, Hosts{{0, 2}, {1, 3}},
                                           Hosts{{0, 1}, {2}}, Hosts{{0}, {1, 2, 3}},
                                           Hosts{{0, 1, 2}}));

TEST_P(Layouts, DoesAllCollectives) {
  int size = 0;
  for (const auto& ranks : GetParam()) size += static_cast<int>(ranks.size());
  run_ranks(size, by_hosts(GetParam(), [](Communicator& comm) {
              EXPECT_EQ(comm.name(), "shm+gloo");
              EXPECT_FALSE(comm.shared_memory(100));
              check_collectives(comm);
            }));
}

TEST(Hierarchical, ARankThatDoesNotComeIsKnownOnAllHosts) {
  const auto start = Clock::now();
  const process::SharedMemory memory(4 * 1000);  // each rank's error
  run_ranks(4, by_hosts(
                   {{0, 1}, {2, 3}},
                   [&](Communicator& comm) {
                     comm.barrier();
                     std::string text;
                     if (comm.rank() == 3) {
                       eventually([&] {
                         text = message_of<Error>([&] { comm.check(); });
                         return text != "";
                       });
                     } else {
                       text = message_of<Error>([&] { comm.all_reduce(torch::ones(10)); });
                     }
                     text.copy(reinterpret_cast<char*>(memory.data()) + 1000 * comm.rank(), 999);
                   },
                   800ms));
  for (int rank = 0; rank < 4; ++rank) {
    const char* text = reinterpret_cast<const char*>(memory.data()) + 1000 * rank;
    EXPECT_THAT(text, AllOf(ContainsRegex("waited (0\\.[89]|1\\.0) s:"), HasSubstr("did not")))
        << rank;
  }
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

TEST(Hierarchical, AnAbortReachesAllHosts) {
  run_ranks(4, by_hosts({{0, 1}, {2, 3}}, [&](Communicator& comm) {
              comm.barrier();
              if (comm.rank() == 3) {
                comm.abort("the disk is full", process::FailureKind::kConfig);
                return;
              }
              EXPECT_EQ(message_of<WorkerError>([&] { comm.all_reduce(torch::ones(10)); }),
                        "rank 3: the disk is full");
              if (comm.rank() != 2) return;  // on the host of rank 3
              const auto failure = comm.failure();
              ASSERT_TRUE(failure);
              EXPECT_EQ(failure->rank, 3);
              EXPECT_EQ(failure->kind, process::FailureKind::kConfig);
            }));
}

TEST(Hierarchical, ARankThatIsOnNoHostIsRefused) {
  EXPECT_THAT(message_of<CommError>([] {
                Hierarchical({.topology = {.rank = 2, .world_size = 3}, .hosts = {{0, 1}}},
                             std::make_unique<Local>(), nullptr);
              }),
              HasSubstr("rank 2 is on no host"));
}

}  // namespace
}  // namespace lockstep::comm
