#include "lockstep/comm/c10d.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "lockstep/comm/rendezvous_session.h"
#include "lockstep/comm/world.h"
#include "tests/comm/collectives.h"
#include "tests/comm/free_port.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Runs the body on the ranks of a group that communicate only through Gloo.
std::function<void(process::HostGroup&)> by_gloo(const std::function<void(Communicator&)>& body,
                                                 std::chrono::milliseconds timeout = 20s) {
  return [=](process::HostGroup& host_group) {
    const auto world = World::of_host_group(host_group, {.backend = "gloo", .timeout = timeout});
    body(world->communicator());
  };
}

class C10dSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(C10d, C10dSizes, ::testing::Values(2, 3, 4));

TEST_P(C10dSizes, DoesAllCollectives) {
  run_ranks(GetParam(), by_gloo([](Communicator& comm) {
              EXPECT_EQ(comm.name(), "gloo");
              EXPECT_FALSE(comm.shared_memory(100));
              check_collectives(comm);
            }));
}

// What the kernel has sent through the TCP connections of this process. Acknowledgements, headers
// and what was sent again are not counted.
std::uint64_t bytes_sent_by_tcp() {
  std::uint64_t bytes = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    bytes += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  return bytes;
}

TEST_P(C10dSizes, RoundedGradientsAreSentInHalfTheBytes) {
  run_ranks(GetParam(), by_gloo([](Communicator& comm) {
              constexpr std::int64_t kCount = 1'000'000;
              const auto bytes_of = [&](Wire wire) {
                const torch::Tensor part = of_rank(comm.rank(), 1000, torch::kFloat32).repeat(1000);
                comm.barrier();
                const std::uint64_t before = bytes_sent_by_tcp();
                comm.sum_parts({.leaves = comm.size(), .tensors = {part}, .wire = wire}, part);
                comm.barrier();
                return static_cast<double>(bytes_sent_by_tcp() - before);
              };
              const double full = bytes_of(Wire::kFp32);
              const double half = bytes_of(Wire::kBf16);
              // docs/reductions.md; a little is for tags, headers of Gloo and the rendezvous.
              const double parts = (comm.size() - 1.0) / comm.size();
              EXPECT_NEAR(full, 2 * 4 * kCount * parts, 20'000);
              EXPECT_NEAR(half, 2 * 2 * kCount * parts, 20'000);
            }));
}

TEST(C10d, DifferentOperationsAreToldBeforeTheTimeLimit) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 2}, by_gloo([](Communicator& comm) {
                               comm.set_progress(1, 2);
                               comm.barrier();
                               if (comm.rank() == 0) {
                                 comm.broadcast(torch::ones(10), 1);
                               } else {
                                 comm.vote(1);
                               }
                             })),
              AllOf(HasSubstr("'broadcast of 40 bytes (Float from rank 1)'"),
                    HasSubstr("'vote of 8 bytes'"), HasSubstr("(in epoch 1, batch 2)"),
                    HasSubstr("all ranks must do the same")));
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

// Gloo itself would add the bits of one type to those of the other.
TEST(C10d, MessagesOfOneLengthAndTwoKindsAreRefused) {
  for (const std::int64_t count : {10, 100'000}) {
    const std::string error =
        error_of_ranks({.size = 2}, by_gloo([count](Communicator& comm) {
                         const auto type = comm.rank() == 0 ? torch::kFloat32 : torch::kInt32;
                         comm.all_reduce(torch::ones({count}, type));
                       }));
    EXPECT_THAT(error, AllOf(HasSubstr("(sum of Float)"), HasSubstr("(sum of Int)"))) << count;
  }
}

TEST(C10d, ARankThatDoesNotComeIsNamedWithTheOperation) {
  const auto start = Clock::now();
  EXPECT_THAT(
      error_of_ranks({.size = 3}, by_gloo(
                                      [](Communicator& comm) {
                                        comm.set_progress(4, 2);
                                        comm.barrier();
                                        if (comm.rank() == 1) {
                                          std::this_thread::sleep_for(10s);
                                        }
                                        comm.all_reduce(torch::ones(100));
                                      },
                                      700ms)),
      AllOf(HasSubstr("rank 1 (in epoch 4, batch 2)"),
            HasSubstr("all_reduce of 400 bytes (sum of Float): waited "),
            ContainsRegex("waited 0\\.[789] s:"), HasSubstr("ranks 0, 2 arrived, rank 1 did not")));
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

TEST(C10d, AStoppedRankIsNamed) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 3, .timeout = 2s}, by_gloo(
                                                             [](Communicator& comm) {
                                                               comm.barrier();
                                                               if (comm.rank() == 2) {
                                                                 ::raise(SIGSTOP);
                                                               }
                                                               comm.all_reduce(torch::ones(100));
                                                             },
                                                             1500ms)),
              AllOf(HasSubstr("rank 2"), HasSubstr("ranks 0, 1 arrived, rank 2 did not")));
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(C10d, WhatARankThrowsReachesTheOthers) {
  const auto start = Clock::now();
  EXPECT_EQ(error_of_ranks({.size = 3}, by_gloo([](Communicator& comm) {
                             comm.barrier();
                             if (comm.rank() == 1) throw DataError("image 7 is broken");
                             comm.all_reduce(torch::ones(100));
                           })),
            "rank 1: image 7 is broken");
  EXPECT_LT(Clock::now() - start, scaled(2s));
}

TEST(C10d, AKilledRankIsNamedWithItsSignal) {
  for (const std::int64_t count : {10, 4'000'000}) {
    const auto start = Clock::now();
    EXPECT_THAT(error_of_ranks({.size = 3}, by_gloo([&](Communicator& comm) {
                                 const torch::Tensor tensor = torch::ones({count});
                                 for (int i = 0; i < 1000; ++i) {
                                   if (comm.rank() == 2 && i == 2) ::raise(SIGKILL);
                                   comm.all_reduce(tensor);
                                 }
                               })),
                HasSubstr("rank 2: its process was killed by signal 9"));
    EXPECT_LT(Clock::now() - start, scaled(3s));
  }
}

// The ranks were not forked by one process, so rank 0 only learns that the connection broke.
TEST(C10d, ARankOfAnotherHostThatWasKilledIsNamed) {
  const int port = free_port();
  const auto body = [](Communicator& comm) {
    comm.set_progress(1, 5);
    comm.barrier();
    if (comm.rank() == 1) ::raise(SIGKILL);
    comm.all_reduce(torch::ones(100));
  };
  RankProcess other([&] {
    const auto world =
        World::meet({.topology = {.rank = 1, .world_size = 2}, .port = port, .token = "secret"},
                    {.backend = "gloo", .timeout = 20s});
    body(world->communicator());
    return 0;
  });
  const auto start = Clock::now();
  const std::string text = message_of<WorkerError>([&] {
    const auto world =
        World::meet({.topology = {.rank = 0, .world_size = 2}, .port = port, .token = "secret"},
                    {.backend = "gloo", .timeout = 20s});
    body(world->communicator());
  });
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

// Rank 1 is given an address that this host does not have.
TEST(C10d, AnErrorOfTheStartIsToldWithItsCause) {
  const int port = free_port();
  const auto start = [&](int rank, const std::string& address) {
    const Topology topology{.rank = rank, .world_size = 2};
    const RendezvousSession session =
        meet_at({.topology = topology, .port = port, .token = "secret"}, {.answer = 20s});
    return message_of<Error>([&] {
      try {
        const C10d comm({.topology = topology, .address = address, .timeout = 20s},
                        session.rendezvous, {0, 1});
      } catch (const std::exception& error) {
        session.rendezvous->fail(error.what());
        if (session.server != nullptr) session.server->wait_until_empty(1s);
        throw;
      }
    });
  };
  const auto began = Clock::now();
  RankProcess other([&] {
    const std::string text = start(1, "203.0.113.1");
    std::fprintf(stderr, "rank 1: %s\n", text.c_str());
    return text.starts_with("gloo: start: ") ? 0 : 1;
  });
  EXPECT_THAT(start(0, "127.0.0.1"), HasSubstr("rank 1: gloo: start: "));
  EXPECT_EQ(other.wait(), 0);
  EXPECT_LT(Clock::now() - began, scaled(10s));
}

// A wait for a rank that works alone takes longer than the time limit. The error has the real time.
TEST(C10d, TheTimeOfAWaitForLoneWorkIsTold) {
  const std::string text = error_of_ranks({.size = 2}, by_gloo(
                                                           [](Communicator& comm) {
                                                             if (comm.rank() == 1) {
                                                               comm.set_alone(true);
                                                             }
                                                             comm.barrier();
                                                             if (comm.rank() == 1) {
                                                               std::this_thread::sleep_for(15s);
                                                             }
                                                             comm.barrier();
                                                           },
                                                           400ms));
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0 arrived, rank 1 did not"),
                          ContainsRegex("barrier: waited [4-9]\\.[0-9] s:")));
}

// Gloo itself would wait for twelve times the time limit, as for an operation.
TEST(C10d, ARankThatNeverStartsItsGroupIsNamed) {
  const int port = free_port();
  NumberPipe end;
  const auto meet = [&](int rank) {
    return meet_at({.topology = {.rank = rank, .world_size = 2}, .port = port, .token = "secret"},
                   {.answer = 20s});
  };
  RankProcess other([&] {
    const RendezvousSession session = meet(1);
    end.take();
    return 0;
  });
  const RendezvousSession session = meet(0);
  const auto start = Clock::now();
  EXPECT_THAT(message_of<Error>([&] {
                const C10d comm({.topology = {.rank = 0, .world_size = 2}, .timeout = 700ms},
                                session.rendezvous, {0, 1});
              }),
              AllOf(HasSubstr("start: waited "), ContainsRegex("waited (0\\.[789]|1\\.[0-9]) s:"),
                    HasSubstr("rank 0 arrived, rank 1 did not")));
  EXPECT_LT(Clock::now() - start, scaled(4s));
  end.put(1);
  EXPECT_EQ(other.wait(), 0);
}

// An operation that never ends must neither delay the end of the process nor run after it.
TEST(C10d, AProcessWithABrokenGroupEndsAtOnce) {
  const int port = free_port();
  RankProcess stopped([&] {
    const auto world =
        World::meet({.topology = {.rank = 1, .world_size = 2}, .port = port, .token = "secret"},
                    {.backend = "gloo", .timeout = 20s});
    world->communicator().barrier();
    ::raise(SIGSTOP);
    return 0;
  });
  const auto began = Clock::now();
  RankProcess zero([&] {
    {
      const auto world =
          World::meet({.topology = {.rank = 0, .world_size = 2}, .port = port, .token = "secret"},
                      {.backend = "gloo", .timeout = 1500ms});
      world->communicator().barrier();
      const std::string text =
          message_of<Error>([&] { world->communicator().all_reduce(torch::ones(100)); });
      if (text.find("rank 1") == std::string::npos) return 1;
    }
    std::exit(0);  // with static objects destroyed
  });
  EXPECT_EQ(zero.wait(), 0);
  EXPECT_LT(Clock::now() - began, scaled(8s));
}

TEST(C10d, ARankThatLeftIsMissed) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 2}, by_gloo([](Communicator& comm) {
                               comm.barrier();
                               if (comm.rank() == 0) comm.all_reduce(torch::ones(100));
                             })),
              HasSubstr("rank 1: left before the others were done"));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(C10d, AnAbortReachesTheOthers) {
  EXPECT_EQ(error_of_ranks({.size = 2}, by_gloo([](Communicator& comm) {
                             comm.barrier();
                             if (comm.rank() == 1) {
                               comm.abort("the disk is full");
                               std::this_thread::sleep_for(10s);
                             }
                             comm.barrier();
                           })),
            "rank 1: the disk is full");
}

// The failure that rank 0 knows after `body` has failed.
process::RankFailure failure_by_gloo(const std::function<void(Communicator&)>& body,
                                     std::chrono::milliseconds timeout = 20s) {
  process::RankFailure failure;
  const auto work = by_gloo(
      [&](Communicator& comm) {
        EXPECT_FALSE(comm.failure());
        try {
          body(comm);
        } catch (const Error&) {
          failure = comm.failure().value_or(process::RankFailure{.rank = -1});
          throw;
        }
      },
      timeout);
  process::ForkedWorkers forked({.size = 2}, work);
  EXPECT_THROW(work(forked.host_group()), Error);
  return failure;
}

TEST(C10d, AFailureOfAForkedRankHasAKind) {
  const auto aborted = failure_by_gloo([](Communicator& comm) {
    comm.set_progress(3, 4);
    comm.barrier();
    if (comm.rank() == 1) comm.abort("no memory", process::FailureKind::kOutOfMemory);
    comm.barrier();
    comm.barrier();
  });
  EXPECT_EQ(aborted.rank, 1);
  EXPECT_EQ(aborted.reason, "no memory");
  EXPECT_EQ(aborted.kind, process::FailureKind::kOutOfMemory);
  EXPECT_EQ(aborted.batch, 4);

  const auto killed = failure_by_gloo([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) ::raise(SIGKILL);
    comm.barrier();
  });
  EXPECT_EQ(killed.rank, 1);
  EXPECT_EQ(killed.kind, process::FailureKind::kLost);

  const auto stopped = failure_by_gloo(
      [](Communicator& comm) {
        comm.barrier();
        if (comm.rank() == 1) ::raise(SIGSTOP);
        comm.barrier();
      },
      500ms);
  EXPECT_EQ(stopped.rank, 1);
  EXPECT_EQ(stopped.kind, process::FailureKind::kHang);
}

}  // namespace
}  // namespace lockstep::comm
