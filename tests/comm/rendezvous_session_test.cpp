#include "lockstep/comm/rendezvous_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "lockstep/comm/shared.h"
#include "tests/comm/free_port.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Whether all ranks have joined and see each other's keys.
bool is_whole(const RendezvousSession& session) {
  session.rendezvous->set("key/" + std::to_string(session.topology.rank), "");
  for (int rank = 0; rank < session.topology.world_size; ++rank) {
    session.rendezvous->get("key/" + std::to_string(rank));
  }
  // No rank leaves before every rank has seen all keys. Rank 0 leaves last.
  if (session.rendezvous->add("seen", 1) == session.topology.world_size)
    session.rendezvous->set("done", "");
  session.rendezvous->get("done");
  session.rendezvous->leave();
  if (session.server != nullptr && !session.server->wait_until_empty(kLimit)) return false;
  return (session.server != nullptr) == (session.topology.rank == 0);
}

// Runs rank 0 in this process, and each other rank in a separate process.
void meet_in_processes(int size, const std::function<RendezvousSession(const Topology&)>& meet,
                       int times = 1) {
  const auto body = [&](int rank) {
    for (int i = 0; i < times; ++i) {
      if (!is_whole(
              meet({.rank = rank, .world_size = size, .local_rank = rank, .local_size = size}))) {
        return 1;
      }
    }
    return 0;
  };
  std::vector<RankProcess> others;
  for (int rank = 1; rank < size; ++rank) others.emplace_back([&, rank] { return body(rank); });
  EXPECT_EQ(body(0), 0);
  for (RankProcess& other : others) EXPECT_EQ(other.wait(), 0);
}

TEST(RendezvousSession, AtAPlaceThatAllKnow) {
  const int port = free_port();
  meet_in_processes(3, [&](const Topology& topology) {
    return meet_at({.topology = topology, .port = port, .token = "secret"}, {.answer = kLimit});
  });
}

TEST(RendezvousSession, TheSameRanksMeetAgainAtTheSamePlace) {
  const int port = free_port();
  meet_in_processes(
      3,
      [&](const Topology& topology) {
        return meet_at({.topology = topology, .port = port, .token = "secret"}, {.answer = kLimit});
      },
      /*times=*/20);
}

TEST(RendezvousSession, AMissingRankIsNamedWithTheAddress) {
  const int port = free_port();
  RankProcess other([&] {
    const std::string text = message_of<CommError>([&] {
      meet_at({.topology = {.rank = 2, .world_size = 3}, .port = port, .token = "secret"},
              {.answer = 1s});
    });
    return text.find("rank 1 did not") != std::string::npos ? 0 : 1;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<CommError>([&] {
                meet_at({.topology = {.rank = 0, .world_size = 3}, .port = port, .token = "secret"},
                        {.answer = 1s});
              }),
              AllOf(HasSubstr("rendezvous at 127.0.0.1:" + std::to_string(port)),
                    HasSubstr("waited 1.0 s"), HasSubstr("ranks 0, 2 arrived, rank 1 did not")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(3s));
}

TEST(RendezvousSession, NoProcessListensAtTheAddress) {
  const int port = free_port();
  EXPECT_THAT(message_of<CommError>([&] {
                meet_at({.topology = {.rank = 1, .world_size = 2}, .port = port, .token = "secret"},
                        {.answer = 300ms});
              }),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)), HasSubstr("0.3 s")));
}

TEST(RendezvousSession, AProcessWithAnotherTokenIsTurnedAway) {
  const int port = free_port();
  RankProcess intruder([&] {
    const std::string text = message_of<CommError>([&] {
      meet_at({.topology = {.rank = 1, .world_size = 2}, .port = port, .token = "guessed"},
              {.answer = kLimit});
    });
    return text.find("turned away") != std::string::npos ? 0 : 1;
  });
  const std::string text = message_of<CommError>([&] {
    meet_at({.topology = {.rank = 0, .world_size = 2}, .port = port, .token = "secret"},
            {.answer = 1s});
  });
  EXPECT_THAT(text, HasSubstr("rank 0 arrived, rank 1 did not"));
  EXPECT_EQ(intruder.wait(), 0);
}

// A process that was given the rank of another process gets an error at once, even if all ranks
// have already joined. The run continues.
TEST(RendezvousSession, ASecondProcessWithOneRankIsToldAtOnceAndTheRunGoesOn) {
  const int port = free_port();
  const NumberPipe joined, end;
  const auto meeting = [&](int rank) {
    return RendezvousSettings{
        .topology = {.rank = rank, .world_size = 2}, .port = port, .token = "secret"};
  };
  RankProcess other([&] {
    const RendezvousSession one = meet_at(meeting(1), {.answer = kLimit});
    joined.put(1);
    end.take();
    return is_whole(one) ? 0 : 1;
  });
  RankProcess duplicate([&] {
    joined.take();
    const auto start = std::chrono::steady_clock::now();
    const std::string text =
        message_of<CommError>([&] { meet_at(meeting(1), {.answer = kLimit}); });
    if (std::chrono::steady_clock::now() - start > kLimit / 4) return 2;
    end.put(1);
    return text.find("rank 1 has already joined from 127.0.0.1") != std::string::npos ? 0 : 1;
  });
  EXPECT_TRUE(is_whole(meet_at(meeting(0), {.answer = kLimit})));
  EXPECT_EQ(duplicate.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
}

// A script runs one program after the other on each host. Rank 1 of the second run may then start
// while rank 0 of the first run has not ended.
TEST(RendezvousSession, ThePlaceOfARankThatLeftIsFreeForTheNextRun) {
  const int port = free_port();
  const auto meeting = [&](int rank) {
    return RendezvousSettings{
        .topology = {.rank = rank, .world_size = 2}, .port = port, .token = "secret"};
  };
  const auto take_part = [&](int rank) {
    return is_whole(meet_at(meeting(rank), {.answer = kLimit})) ? 0 : 1;
  };
  const NumberPipe left, waits;
  RankProcess first([&] {
    const int code = take_part(1);
    left.put(1);
    return code;
  });
  RankProcess second([&] {
    left.take();
    waits.put(1);
    return take_part(1);
  });
  {
    const RendezvousSession session = meet_at(meeting(0), {.answer = kLimit});
    EXPECT_TRUE(is_whole(session));
    waits.take();
  }
  EXPECT_EQ(take_part(0), 0);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(RendezvousSession, SeveralHostsWithoutASecretAreRefusedBeforeAnyRankListens) {
  ::unsetenv("LOCKSTEP_TOKEN");
  const auto refusal = [](const RendezvousSettings& meeting) {
    return message_of<ConfigError>([&] { meet_at(meeting, {.answer = 1s}); });
  };
  for (const int rank : {0, 1}) {
    RendezvousSettings meeting{
        .topology = {.rank = rank, .world_size = 2}, .address = "10.1.2.3", .port = 1};
    EXPECT_THAT(refusal(meeting), AllOf(HasSubstr("10.1.2.3:1"), HasSubstr("there is no token"),
                                        HasSubstr("openssl rand")));
    meeting.token = "10.1.2.3:1";
    EXPECT_THAT(refusal(meeting), HasSubstr("can be guessed"));
  }
  // A launcher that gives no token: mpirun or srun on several hosts, or variables set by hand.
  EXPECT_THAT(message_of<ConfigError>([] {
                meet_as_launched({.launcher = process::Launcher::kSlurm,
                                  .topology = {.rank = 1, .world_size = 4, .local_size = 2},
                                  .local_size_known = true,
                                  .master_address = "node1",
                                  .master_port = 29500,
                                  .run_id = "4711.0"},
                                 {.answer = 1s});
              }),
              AllOf(HasSubstr("node1:29500"), HasSubstr("LOCKSTEP_TOKEN_FILE")));
}

// Rank 0's host need not have the address that the other ranks were given.
TEST(RendezvousSession, RanksOfOneHostMeetByLoopbackWhateverTheHostIsCalled) {
  const int port = free_port();
  meet_in_processes(2, [&](const Topology& topology) {
    return meet_as_launched({.topology = topology,
                             .local_size_known = true,
                             .master_address = "no-such-host.invalid",
                             .master_port = port,
                             .run_id = "run"},
                            {.answer = kLimit});
  });
}

TEST(RendezvousSession, ThroughACommunicator) {
  run_ranks(3, [](process::HostGroup& host_group) {
    Shared shared(host_group);
    EXPECT_TRUE(is_whole(meet_through(shared, {.answer = kLimit})));
  });
}

TEST(RendezvousSession, ThroughACommunicatorWhoseRankFails) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of_ranks({.size = 3},
                           [](process::HostGroup& host_group) {
                             Shared shared(host_group);
                             if (host_group.rank() == 2) {
                               shared.broadcast_bytes("", 0);
                               throw Error("no socket");
                             }
                             meet_through(shared, {.answer = kLimit});
                           }),
            "rank 2: no socket");
  EXPECT_LT(std::chrono::steady_clock::now() - start, scaled(2s));
}

TEST(RendezvousSession, ByAnAnnouncementOfOneHost) {
  const std::string run = "test-" + std::to_string(::getpid());
  meet_in_processes(
      3,
      [&](const Topology& topology) {
        return meet_as_launched({.launcher = process::Launcher::kOpenMpi,
                                 .topology = topology,
                                 .local_size_known = true,
                                 .run_id = run},
                                {.answer = kLimit});
      },
      /*times=*/5);
}

TEST(RendezvousSession, AtTheMastersAddress) {
  for (const std::string run : {"job 7", ""}) {
    const int port = free_port();
    meet_in_processes(
        2,
        [&](const Topology& topology) {
          return meet_as_launched({.launcher = process::Launcher::kSlurm,
                                   .topology = topology,
                                   .master_address = "localhost",
                                   .master_port = port,
                                   .run_id = run},
                                  {.answer = kLimit});
        },
        /*times=*/3);
  }
}

TEST(RendezvousSession, ThroughTheStoreOfTorchrunsAgent) {
  const NumberPipe ports;
  const NumberPipe ends;
  RankProcess agent([&] {
    auto options = without_libuv(c10d::TCPStoreOptions());
    options.isServer = true;
    options.port = 0;
    options.waitWorkers = false;
    c10d::TCPStore store("127.0.0.1", options);
    ports.put(store.getPort());
    return ends.take();
  });
  const int port = ports.take();
  meet_in_processes(
      2,
      [&](const Topology& topology) {
        return meet_as_launched({.topology = topology,
                                 .master_address = "127.0.0.1",
                                 .master_port = port,
                                 .agent_store = true,
                                 .run_id = "none-0"},
                                {.answer = kLimit});
      },
      /*times=*/3);
  EXPECT_THAT(message_of<CommError>([&] {
                meet_as_launched({.topology = {.rank = 1, .world_size = 2},
                                  .master_address = "127.0.0.1",
                                  .master_port = port,
                                  .agent_store = true,
                                  .run_id = "another"},
                                 {.answer = 1s});
              }),
              HasSubstr("the store of torchrun's agent at 127.0.0.1:" + std::to_string(port)));
  ends.put(0);
  EXPECT_EQ(agent.wait(), 0);
}

// The newest torchrun has a store that LibTorch 1.13 cannot talk to. Here there is none at all.
TEST(RendezvousSession, OnOneHostTheStoreOfTorchrunsAgentIsNotNeeded) {
  const std::string run = fmt::format("none-{}", ::getpid());
  meet_in_processes(
      2,
      [&](const Topology& topology) {
        return meet_as_launched({.topology = topology,
                                 .local_size_known = true,
                                 .master_address = "127.0.0.1",
                                 .master_port = 1,
                                 .agent_store = true,
                                 .run_id = run},
                                {.answer = kLimit});
      },
      /*times=*/2);
}

TEST(RendezvousSession, ALauncherThatSaysTooLittleIsRefused) {
  EXPECT_THAT(message_of<ConfigError>([] {
                meet_as_launched({.topology = {.rank = 1, .world_size = 4, .local_size = 2}},
                                 {.answer = 1s});
              }),
              AllOf(HasSubstr("rank 1 of 4"), HasSubstr("MASTER_ADDR")));
}

}  // namespace
}  // namespace lockstep::comm
