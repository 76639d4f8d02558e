#include "lockstep/comm/two_planes.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/warn.h"
#include "lockstep/comm/c10d.h"
#include "lockstep/comm/hierarchical.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/rendezvous_session.h"
#include "tests/comm/collectives.h"
#include "tests/comm/fake_plane.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;
using Hosts = std::vector<std::vector<int>>;

class PlaneRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(TwoPlanes, PlaneRanks, ::testing::Range(1, 6));

TEST_P(PlaneRanks, DoTheCollectivesOnDevices) {
  run_fake_ranks({.size = GetParam()}, [](const FakeRank& rank) {
    EXPECT_EQ(rank.comm.name(), "shm");
    if (rank.comm.size() < 5) {
      check_collectives(rank.comm);
    } else {  // there are not enough random numbers for the rest
      check_all_reduce(rank.comm);
      check_sum_parts(rank.comm);
      check_broadcast(rank.comm);
    }
    EXPECT_EQ(rank.comm.name(), rank.comm.size() > 1 ? "shm+fake" : "shm");
  });
}

// The bits of one rank, however many ranks and leaves there are, for arrays that are sent at once
// and in parts, which the number of ranks divides or not.
TEST_P(PlaneRanks, OrderedSumsHaveTheBitsOfOneRank) {
  run_fake_ranks({.size = GetParam()}, [](const FakeRank& rank) {
    const Share share{.rank = rank.comm.rank(), .size = rank.comm.size()};
    for (const std::int64_t count : {1, 7, 2000, 30'000, 60'001}) {
      for (int leaves = 1; leaves <= 8; ++leaves) {
        Parts parts{.leaves = leaves};
        const auto range = leaves_of(share, leaves);
        for (int leaf = range.begin; leaf < range.end; ++leaf) {
          parts.tensors.push_back(of_rank(leaf, count, torch::kFloat32));
        }
        const torch::Tensor out = torch::empty({count});
        rank.comm.sum_parts(parts, out);
        ASSERT_TRUE(same_bits(
            out, reduced_by_one(random_tensors(leaves, count, torch::kFloat32), ReduceOp::kSum)))
            << leaves << " leaves of " << count;
      }
    }
  });
}

// Every leaf and every sum is rounded, and the front of the array is not.
TEST_P(PlaneRanks, RoundedSumsHaveTheBitsOfOneRank) {
  run_fake_ranks({.size = GetParam()}, [](const FakeRank& rank) {
    const auto sum_of = [](Communicator& comm, int leaves, std::int64_t count) {
      Parts parts{.leaves = leaves, .wire = Wire::kBf16, .exact = 4};
      const auto range = leaves_of({.rank = comm.rank(), .size = comm.size()}, leaves);
      for (int leaf = range.begin; leaf < range.end; ++leaf) {
        parts.tensors.push_back(of_rank(leaf, count, torch::kFloat32));
      }
      const torch::Tensor out = torch::empty({count});
      comm.sum_parts(parts, out);
      return out;
    };
    Local alone;
    for (const std::int64_t count : {2000, 60'001}) {
      for (int leaves = 1; leaves <= 8; ++leaves) {
        ASSERT_TRUE(same_bits(sum_of(rank.comm, leaves, count), sum_of(alone, leaves, count)))
            << leaves << " leaves of " << count;
      }
    }
  });
}

TEST(TwoPlanes, FastSumsAreLeftToThePlane) {
  run_fake_ranks({.size = 3, .order = SumOrder::kFast}, [](const FakeRank& rank) {
    const auto terms = random_tensors(3, 5000, torch::kFloat32);
    const torch::Tensor tensor = terms[static_cast<std::size_t>(rank.comm.rank())].clone();
    rank.comm.all_reduce(tensor);
    EXPECT_TRUE(same_bits(tensor, (terms[2] + terms[1]) + terms[0]));
    EXPECT_FALSE(same_bits(tensor, reduced_by_one(terms, ReduceOp::kSum)));
    EXPECT_EQ(rank.planes.plane()->fast_sums(), 1);
    const torch::Tensor mean = terms[static_cast<std::size_t>(rank.comm.rank())].clone();
    rank.comm.all_reduce(mean, ReduceOp::kMean);
    EXPECT_TRUE(same_bits(mean, tensor / 3));

    // A rank adds up its own terms first.
    Parts parts{.leaves = 5};
    const auto range = leaves_of({.rank = rank.comm.rank(), .size = 3}, 5);
    for (int leaf = range.begin; leaf < range.end; ++leaf) {
      parts.tensors.push_back(torch::full({10}, leaf + 1.0));
    }
    rank.comm.sum_parts(parts, parts.tensors.front());
    EXPECT_TRUE(same_bits(parts.tensors.front(), torch::full({10}, 15.0)));
    // A rank without a term.
    Parts few{.leaves = 2};
    for (int i = leaves_of({.rank = rank.comm.rank(), .size = 3}, 2).count(); i > 0; --i) {
      few.tensors.push_back(torch::ones(4));
    }
    const torch::Tensor out = torch::full({4}, 7.0F);
    rank.comm.sum_parts(few, out);
    EXPECT_TRUE(same_bits(out, torch::full({4}, 2.0F)));
    EXPECT_EQ(rank.planes.plane()->fast_sums(), 4);

    // The plane cannot add these.
    const torch::Tensor shorts = torch::full({4}, 2, torch::kInt16);
    rank.comm.all_reduce(shorts);
    EXPECT_TRUE(same_bits(shorts, torch::full({4}, 6, torch::kInt16)));
    EXPECT_EQ(rank.planes.plane()->fast_sums(), 4);
  });
}

// The compute stream writes the tensors late, and the planes of the ranks are late by different
// times.
TEST(TwoPlanes, WaitsForStreamsThatAreLate) {
  const std::map<int, FakePlaneOptions> planes = {{0, {.late = 1ms}}, {1, {.late = 20ms}}, {2, {}}};
  run_fake_ranks({.size = 3, .planes = planes}, [](const FakeRank& rank) {
    rank.comm.broadcast(torch::ones(1));  // starts the plane
    for (int round = 0; round < 5; ++round) {
      for (const std::int64_t count : {100, 40'001}) {
        const torch::Tensor tensor = torch::zeros({count});
        const torch::Tensor value = of_rank(rank.comm.rank(), count, torch::kFloat32);
        rank.planes.plane()->compute().give([=] {
          std::this_thread::sleep_for(10ms);
          torch::Tensor(tensor).copy_(value);
        });
        const auto right =
            reduced_by_one(random_tensors(3, count, torch::kFloat32), ReduceOp::kSum);
        if (round % 2 == 0) {
          rank.comm.all_reduce(tensor);
        } else {
          // What the stream is given after ready() does not matter.
          const auto after = rank.comm.ready(tensor);
          ASSERT_NE(after, nullptr);
          rank.planes.plane()->compute().give([] { std::this_thread::sleep_for(30ms); });
          rank.comm.sum_parts({.leaves = 3, .tensors = {tensor}, .after = after}, tensor);
        }
        ASSERT_TRUE(same_bits(tensor, right));
      }
    }
  });
}

// What each rank throws. `all_on_devices`: every rank's error comes from a collective on devices.
std::vector<std::string> errors_of(const FakeRanksOptions& options,
                                   const std::function<void(const FakeRank&)>& body,
                                   bool all_on_devices = true) {
  std::vector<std::string> errors(static_cast<std::size_t>(options.size));
  run_fake_ranks(options, [&](const FakeRank& rank) {
    auto& error = errors[static_cast<std::size_t>(rank.comm.rank())];
    error = message_of<Error>([&] { body(rank); });
    if (rank.planes.plane() != nullptr && all_on_devices) {
      EXPECT_TRUE(rank.planes.plane()->aborted()) << rank.comm.rank();
      EXPECT_THAT(message_of<Error>([&] { rank.comm.broadcast(torch::ones(3)); }),
                  HasSubstr("cannot be used after an error"));
    }
  });
  return errors;
}

TEST(TwoPlanes, ACollectiveThatHangsEndsByTheTimeLimit) {
  for (const int operation : {0, 1}) {  // the exchange, the gather
    const auto start = Clock::now();
    const auto errors = errors_of(
        {.size = 3, .timeout = 600ms, .planes = {{1, {.hangs_at = operation}}}},
        [](const FakeRank& rank) {
          rank.comm.sum_parts({.leaves = 3, .tensors = {torch::ones(50'000)}}, torch::ones(50'000));
        });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("reduction of gradients of 200000 bytes on GPUs"),
                           HasSubstr("sum of Float, ordered, 3 terms"), HasSubstr("waited"),
                           HasSubstr("ranks 0, 1, 2 arrived, but what they sent did not"))));
    EXPECT_LT(Clock::now() - start, scaled(30s));
  }
}

TEST(TwoPlanes, AnErrorOfOneRanksDeviceIsKnownToAll) {
  // An abort may wait for the other ranks, so they must know of the error before.
  std::atomic<int> know = 0;
  const auto wait_for_others = [&] { EXPECT_TRUE(eventually([&] { return know == 2; }, 5s)); };
  const auto errors =
      errors_of({.size = 3, .planes = {{2, {.fails_at = 1, .in_abort = wait_for_others}}}},
                [&](const FakeRank& rank) {
                  try {
                    rank.comm.all_reduce(torch::ones(50'000));
                  } catch (const Error&) {
                    ++know;
                    throw;
                  }
                });
  EXPECT_EQ(errors[2],
            "fake: all_reduce of 200000 bytes on GPUs (sum of Float, ordered, 3 terms): the fake "
            "device broke");
  EXPECT_EQ(errors[0], "rank 2: " + errors[2]);
  EXPECT_EQ(errors[1], "rank 2: " + errors[2]);
}

TEST(TwoPlanes, AnErrorThatNoCallHasThrownIsFoundInTheWait) {
  const auto errors =
      errors_of({.size = 2, .planes = {{1, {.hangs_at = 0, .reports_hang = true}}}},
                [](const FakeRank& rank) { rank.comm.broadcast(torch::ones(3), 1); });
  EXPECT_EQ(errors[1],
            "fake: broadcast of 12 bytes on GPUs (Float from rank 1): the fake device is stuck");
  EXPECT_EQ(errors[0], "rank 1: " + errors[1]);
}

// Runs the ranks in a process that must end with code 1. Returns the text of its standard error.
std::string errors_of_process(const FakeRanksOptions& options,
                              const std::function<void(const FakeRank&)>& body) {
  std::FILE* const errors = std::tmpfile();
  if (errors == nullptr) return "no file for the errors";
  RankProcess process([&] {
    ::dup2(::fileno(errors), STDERR_FILENO);
    run_fake_ranks(options, body);
    return 0;
  });
  EXPECT_EQ(process.wait(), 1);
  std::rewind(errors);
  std::array<char, 1000> text = {};
  const std::size_t length = std::fread(text.data(), 1, text.size(), errors);
  std::fclose(errors);
  return {text.data(), length};
}

// No exception can end such an abort, so the process ends.
TEST(TwoPlanes, AnAbortThatDoesNotEndEndsTheProcess) {
  EXPECT_THAT(
      errors_of_process({.size = 2,
                         .timeout = 300ms,
                         .planes = {{1, {.hangs_at = 0, .in_abort = [] { wait_for_ever(); }}}}},
                        [](const FakeRank& rank) { rank.comm.broadcast(torch::ones(3)); }),
      HasSubstr("lockstep: fake: abort after 'broadcast of 12 bytes on GPUs (Float from "
                "rank 0)' did not end within 0.3 s; the messages of the kernel"));
}

// Rank 0 learns of the failure in a vote, which is not a call of the data plane.
TEST(TwoPlanes, AnAbortAfterAFailureThatAVoteNoticedHasTheTimeLimit) {
  EXPECT_THAT(
      errors_of_process(
          {.size = 2, .timeout = 300ms, .planes = {{0, {.in_abort = [] { wait_for_ever(); }}}}},
          [](const FakeRank& rank) {
            rank.comm.broadcast(torch::ones(3));
            rank.comm.vote(1);  // no rank waits for the data plane any more
            if (rank.comm.rank() == 1) return rank.comm.abort("the disk is full");
            EXPECT_THROW(rank.comm.vote(1), Error);
          }),
      HasSubstr("lockstep: fake: abort after 'broadcast of 12 bytes on GPUs (Float from "
                "rank 0)' did not end within 0.3 s"));
}

// The ranks are two processes that no other process watches over. Rank 1 has announced the
// broadcast, and dies before it sends anything.
TEST(TwoPlanes, ARankThatIsKilledInACollectiveIsNamed) {
  const auto memory = std::make_shared<process::HostGroupMemory>(2);
  const auto broadcast = [&](int rank, const FakePlaneOptions& plane) {
    process::HostGroup host_group(memory, {.rank = rank, .timeout = kLimit});
    host_group.join();
    const FakePlanes planes(rank, std::make_shared<FakeFabric>(), plane);
    TwoPlanes comm({.factory = planes, .timeout = kLimit}, std::make_unique<Shared>(host_group));
    comm.broadcast(torch::ones(3), 1);
  };
  RankProcess other([&] {
    broadcast(1, {.dies_at = 0});
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { broadcast(0, {}); }),
            "rank 1: its process ended without reporting an error");
  EXPECT_LT(Clock::now() - start, scaled(5s));
  EXPECT_EQ(other.wait(), -SIGKILL);
}

TEST(TwoPlanes, ARankThatFailsElsewhereEndsTheWait) {
  const auto start = Clock::now();
  // Rank 0 hangs and is told by its own control plane that rank 1 fails.
  const auto errors =
      errors_of({.size = 2, .planes = {{0, {.hangs_at = 1}}}}, [](const FakeRank& rank) {
        rank.comm.broadcast(torch::ones(3));
        if (rank.comm.rank() == 0) return rank.comm.broadcast(torch::ones(3));
        std::thread failing([&] {
          std::this_thread::sleep_for(50ms);
          rank.comm.abort("the disk is full");
        });
        failing.join();
        rank.comm.broadcast(torch::ones(3));
      });
  EXPECT_EQ(errors[0], "rank 1: the disk is full");
  EXPECT_LT(Clock::now() - start, scaled(30s));
}

TEST(TwoPlanes, DifferentCollectivesAreNamedOnAllRanks) {
  const auto on_devices = errors_of({.size = 3}, [](const FakeRank& rank) {
    rank.comm.broadcast(torch::ones(1));
    if (rank.comm.rank() == 1) return rank.comm.broadcast(torch::ones(20'000));
    rank.comm.all_reduce(torch::ones(20'000));
  });
  EXPECT_THAT(on_devices,
              Each(AllOf(HasSubstr("'broadcast of 80000 bytes on GPUs (Float from rank 0)'"),
                         HasSubstr("'all_reduce of 80000 bytes on GPUs (sum of Float"),
                         HasSubstr("all ranks must do the same"))));
  const auto orders = errors_of({.size = 2}, [](const FakeRank& rank) {
    rank.comm.all_reduce(torch::ones(10), rank.comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
  });
  EXPECT_THAT(orders, Each(AllOf(HasSubstr("(sum of Float"), HasSubstr("(maximum of Float"))));
}

// One rank calls a collective of the data plane, the other one of the control plane.
TEST(TwoPlanes, ThePlanesAreNotMistakenForEachOther) {
  const std::map<std::string, std::function<void(Communicator&)>> calls = {
      {"vote", [](Communicator& comm) { comm.vote(7); }},
      {"barrier", [](Communicator& comm) { comm.barrier(); }},
      {"gather", [](Communicator& comm) { comm.all_gather_bytes("12345678"); }}};
  for (const auto& [name, call] : calls) {
    const auto errors = errors_of(
        {.size = 2},
        [&](const FakeRank& rank) {
          rank.comm.broadcast(torch::ones(1));
          if (rank.comm.rank() == 0) return call(rank.comm);
          rank.comm.all_reduce(torch::ones(10));
        },
        false);
    EXPECT_THAT(errors[1], AllOf(HasSubstr("collective on GPUs"), HasSubstr(name)));
  }
}

TEST(TwoPlanes, ARankThatDoesNotComeIsNamed) {
  const auto errors = errors_of(
      {.size = 3, .timeout = 500ms},
      [](const FakeRank& rank) {
        rank.comm.broadcast(torch::ones(1));
        if (rank.comm.rank() != 2) return rank.comm.all_reduce(torch::ones(10));
        while (true) {
          rank.comm.check();
          std::this_thread::sleep_for(5ms);
        }
      },
      false);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 2"), HasSubstr("collective on GPUs"),
                               HasSubstr("ranks 0, 1 arrived")));
}

TEST(TwoPlanes, RanksThatShareADeviceAreStagedOrRefused) {
  const std::map<int, FakePlaneOptions> planes = {{0, {.identity = "GPU-1"}},
                                                  {2, {.identity = "GPU-1"}}};
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  run_fake_ranks({.size = 3, .planes = planes}, [](const FakeRank& rank) {
    for (int i = 0; i < 2; ++i) {
      const torch::Tensor tensor = torch::ones(10);
      rank.comm.all_reduce(tensor);
      EXPECT_EQ(tensor[9].item<float>(), 3.0F);
    }
    EXPECT_EQ(rank.planes.plane(), nullptr);
    EXPECT_EQ(rank.comm.name(), "shm");
    EXPECT_EQ(rank.comm.ready(torch::ones(1)), nullptr);
  });
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("ranks 0, 2 use the same GPU (GPU-1)"),
                                 HasSubstr("copied to the CPU"), Not(HasSubstr("reduction"))));
  const auto errors =
      errors_of({.size = 3, .required = true, .planes = planes},
                [](const FakeRank& rank) { rank.comm.all_reduce(torch::ones(10)); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("backend: fake: ranks 0, 2 use the same GPU"),
                                 HasSubstr("as many workers as there are GPUs"))));
}

TEST(TwoPlanes, StagedTensorsAreSummedInTheirOrderAndTheWarningSaysSo) {
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  run_fake_ranks({.size = 2,
                  .order = SumOrder::kFast,
                  .planes = {{0, {.identity = "GPU-1"}}, {1, {.identity = "GPU-1"}}}},
                 [](const FakeRank& rank) { rank.comm.all_reduce(torch::ones(10)); });
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("reduction: fast has no effect: sums keep their order"));
}

TEST(TwoPlanes, AStartThatFailsIsKnownToAll) {
  const auto run = [](const FakeRank& rank) { rank.comm.all_reduce(torch::ones(10)); };
  EXPECT_THAT(
      errors_of({.size = 2, .required = true, .planes = {{1, {.start_error = "identity"}}}}, run),
      Each(HasSubstr("backend: fake: rank 1: no fake device for identity")));
  EXPECT_THAT(errors_of({.size = 2, .planes = {{0, {.start_error = "id"}}}}, run),
              Each(HasSubstr("fake: start of fake: rank 0: no fake device for id")));
  const auto making = errors_of({.size = 2, .planes = {{1, {.start_error = "make"}}}}, run);
  EXPECT_EQ(making[1], "fake: start of fake: no fake device for make");
  EXPECT_EQ(making[0], "rank 1: " + making[1]);
  const auto connecting = errors_of({.size = 2, .planes = {{1, {.start_error = "connect"}}}}, run);
  EXPECT_EQ(connecting[1], "fake: start of fake: no fake device to connect");
  EXPECT_EQ(connecting[0], "rank 1: " + connecting[1]);
}

TEST(TwoPlanes, AStartThatHangsEndsByTheTimeLimit) {
  const FakePlaneOptions hangs{.hangs_in_connect = true};
  const auto errors =
      errors_of({.size = 2, .timeout = 300ms, .planes = {{0, hangs}, {1, hangs}}},
                [](const FakeRank& rank) { rank.comm.all_reduce(torch::ones(10)); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("fake: start of fake: waited"),
                                 HasSubstr("ranks 0, 1 arrived, but what they sent did not"))));
}

// Ranks that communicate through Gloo, or that act as ranks of two hosts.
TEST(TwoPlanes, HasAnyControlPlane) {
  const Hosts hosts = {{0, 1}, {2}};
  const auto memory = std::make_shared<process::HostGroupMemory>(2);
  const auto gloo = [](const process::HostGroup& all, const Topology& topology,
                       const RendezvousSession& session, std::vector<int> ranks) {
    return std::make_unique<C10d>(
        C10dOptions{.topology = topology,
                    .group = all.size() == topology.world_size ? "world" : "leaders",
                    .timeout = kLimit},
        session.rendezvous, std::move(ranks));
  };
  for (const bool two_hosts : {false, true}) {
    SCOPED_TRACE(two_hosts);
    FakeRanksOptions options{.size = 3};
    options.control =
        [&](process::HostGroup& all,
            std::vector<std::shared_ptr<void>>& owned) -> std::unique_ptr<Communicator> {
      auto shared = std::make_shared<Shared>(all);
      const auto session =
          std::make_shared<RendezvousSession>(meet_through(*shared, {.answer = kLimit}));
      owned = {session, shared};
      const int rank = all.rank();
      if (!two_hosts) {
        return gloo(all, {.rank = rank, .world_size = 3}, *session, {0, 1, 2});
      }
      std::unique_ptr<Communicator> inside = std::make_unique<Local>();
      if (rank < 2) {
        const auto host_group = std::make_shared<process::HostGroup>(
            memory, process::HostGroupOptions{.rank = rank, .timeout = kLimit, .names = {0, 1}});
        host_group->join();
        owned.push_back(host_group);
        inside = std::make_unique<Shared>(*host_group);
      }
      std::unique_ptr<Communicator> leaders;
      if (rank != 1) leaders = gloo(all, {.rank = rank / 2, .world_size = 2}, *session, {0, 2});
      return std::make_unique<Hierarchical>(
          HierarchicalOptions{
              .topology = {.rank = rank, .world_size = 3, .local_rank = rank % 2, .local_size = 2},
              .hosts = hosts},
          std::move(inside), std::move(leaders));
    };
    std::vector<std::string> texts(3);
    run_fake_ranks(options, [&](const FakeRank& rank) {
      check_sum_parts(rank.comm);
      check_votes(rank.comm);
      EXPECT_EQ(rank.comm.name(), two_hosts ? "shm+gloo+fake" : "gloo+fake");
      rank.comm.barrier();
      // A vote is not an announcement.
      const std::string text = message_of<Error>([&] {
        if (rank.comm.rank() == 2) {
          rank.comm.vote(7);
        } else {
          rank.comm.all_reduce(torch::ones(10));
        }
      });
      texts[static_cast<std::size_t>(rank.comm.rank())] = text;
      rank.comm.abort(text);
    });
    // The ranks that do not find it out themselves hear of it.
    EXPECT_THAT(texts, Each(Not("")));
    EXPECT_THAT(texts, Contains(HasSubstr("all ranks must do the same")));
  }
}

TEST(TwoPlanes, ThereAreTwoOrders) {
  EXPECT_EQ(sum_order("ordered"), SumOrder::kOrdered);
  EXPECT_EQ(sum_order("fast"), SumOrder::kFast);
  EXPECT_THAT(message_of<ConfigError>([] { sum_order("quick"); }),
              HasSubstr("reduction: expected ordered or fast, got 'quick'"));
}

}  // namespace
}  // namespace lockstep::comm
