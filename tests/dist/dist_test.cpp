#include "lockstep/dist/dist.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/utils.h>
#include <unistd.h>

#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/engine/devices.h"
#include "lockstep/process/affinity.h"
#include "tests/dist/workers.h"
#include "tests/support/torch_fork.h"

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> values(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.to(torch::kFloat64).reshape({-1}).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

data::DatasetPtr numbers(std::int64_t count) {
  return std::make_shared<data::TensorDataset>(torch::arange(count), torch::arange(count));
}

// Sets environment variables; the destructor unsets them.
class Variables {
 public:
  explicit Variables(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      names_.push_back(name);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Variables() {
    for (const auto& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST(Dist, OneProcessNeedsNoGroup) {
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(get_rank(), 0);
  EXPECT_EQ(get_world_size(), 1);
  EXPECT_TRUE(is_primary());
  EXPECT_THAT(values(reduce(torch::tensor({3.0}))), ElementsAre(3.0));
  EXPECT_THAT(values(all_reduce(torch::tensor({3.0}), ReduceOp::kMean)), ElementsAre(3.0));
  EXPECT_THAT(values(broadcast(torch::tensor({3.0}))), ElementsAre(3.0));
  EXPECT_EQ(gather(torch::tensor({3.0})).size(), 1U);
  EXPECT_EQ(all_gather(torch::tensor({3.0})).size(), 1U);
  barrier();
  wait_for_everyone();
  sync_params({torch::tensor({3.0})});
  cleanup();
  cleanup();
  abort("there is no other rank");
}

TEST(Dist, AGroupOfOne) {
  init_process_group({.rank = 0, .world_size = 1});
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(get_world_size(), 1);
  EXPECT_THAT(error_of<ConfigError>([] { init_process_group(); }), HasSubstr("cleanup() first"));
  EXPECT_THAT(error_of<ConfigError>([] { launch([](int, int) {}); }), HasSubstr("cleanup() first"));
  cleanup();
  EXPECT_FALSE(is_initialized());
}

TEST(Launch, CallsTheWorkerInEveryProcess) {
  int calls = 0;
  const pid_t caller = ::getpid();
  run_workers({.count = 3}, [&](int rank, int world_size) {
    ++calls;
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(rank == 0, ::getpid() == caller);
    EXPECT_EQ(get_rank(), rank);
    EXPECT_EQ(get_world_size(), world_size);
    EXPECT_EQ(world_size, 3);
    EXPECT_EQ(is_primary(), rank == 0);
    const auto pids = all_gather(torch::tensor(static_cast<std::int64_t>(::getpid())));
    EXPECT_NE(pids[0].item<std::int64_t>(), pids[1].item<std::int64_t>());
    EXPECT_NE(pids[1].item<std::int64_t>(), pids[2].item<std::int64_t>());
  });
  EXPECT_EQ(calls, 1);  // rank 0 ran in this process
  EXPECT_FALSE(is_initialized());
}

TEST(Launch, PassesArgumentsOn) {
  // Without options there is one worker per core.
  std::string seen;
  const auto worker = [&](int rank, int world_size, const std::string& text, int number) {
    if (rank == 0) seen = fmt::format("{} {} {}", world_size > 0, text, number);
  };
  launch(worker, std::string("text"), 7);
  EXPECT_EQ(seen, "true text 7");
}

TEST(Launch, OneWorkerIsThisProcess) {
  const pid_t caller = ::getpid();
  launch(
      [&](int rank, int world_size) {
        EXPECT_EQ(::getpid(), caller);
        EXPECT_EQ(rank, 0);
        EXPECT_EQ(world_size, 1);
        init_process_group({.rank = rank, .world_size = world_size});
        EXPECT_THAT(error_of<ConfigError>([] { launch([](int, int) {}); }),
                    HasSubstr("inside of a worker"));
      },
      {.workers = 1});
  EXPECT_FALSE(is_initialized());
}

TEST(Launch, NamesTheRankThatThrew) {
  for (const char* backend : {"auto", "gloo"}) {
    const auto run = [&] {
      run_workers({.count = 3, .backend = backend}, [](int rank, int) {
        barrier();
        if (rank == 2) throw Error("the disk is full");
        barrier();
      });
    };
    EXPECT_THAT(error_of<WorkerError>(run), AllOf(HasSubstr("rank 2"), HasSubstr("disk is full")))
        << backend;
    EXPECT_FALSE(is_initialized());
  }
}

TEST(Launch, NamesTheRankThatWasKilled) {
  const auto run = [] {
    run_workers({.count = 2}, [](int rank, int) {
      if (rank == 1) ::raise(SIGKILL);
      barrier();
    });
  };
  EXPECT_THAT(error_of<WorkerError>(run), AllOf(HasSubstr("rank 1"), HasSubstr("killed")));
}

TEST(Launch, ThrowsWhatWasThrownHere) {
  const auto run = [] {
    run_workers({.count = 2}, [](int rank, int) {
      if (rank == 0) throw DataError("no such file");
      barrier();
    });
  };
  EXPECT_EQ(error_of<DataError>(run), "no such file");
  EXPECT_FALSE(is_initialized());
}

TEST(Launch, RefusesWhatMakesNoSense) {
  EXPECT_THAT(error_of<ConfigError>([] { launch([](int, int) {}, {.workers = 0}); }),
              HasSubstr("got 0"));
  EXPECT_THAT(error_of<ConfigError>([] { launch(std::function<void(int, int)>()); }),
              HasSubstr("empty function"));
  EXPECT_THAT(error_of<ConfigError>([] { run_workers({.backend = "pigeon"}, [](int, int) {}); }),
              HasSubstr("pigeon"));
}

TEST(Launch, SharesTheCores) {
  const int threads = torch::get_num_threads();
  run_workers({.count = 2}, [](int, int) {
    const int each = std::max(1, process::usable_cores() / 2);
    EXPECT_EQ(torch::get_num_threads(), each);
  });
  EXPECT_EQ(torch::get_num_threads(), threads);
}

// This process has used autograd and OpenMP before the fork. Workers must be able to use them, too.
TEST(Launch, WorksAfterTrainingInTheCaller) {
  auto x = torch::ones({1000, 100}, torch::requires_grad());
  (x.matmul(x.t())).sum().backward();
  run_workers({.count = 2}, [](int, int) {
    auto y = torch::ones({100, 100}, torch::requires_grad());
    (y.matmul(y)).sum().backward();
    EXPECT_EQ(y.grad()[0][0].item<float>(), 200.0F);
  });
}

TEST(InitProcessGroup, IsNeededWhereThereAreOthers) {
  run_workers({.init = false}, [](int, int) {
    EXPECT_EQ(get_rank(), 0);
    EXPECT_EQ(get_world_size(), 1);
    const auto refused = [](const std::function<void()>& action) {
      EXPECT_THAT(error_of<ConfigError>(action),
                  AllOf(HasSubstr("one of 2"), HasSubstr("init_process_group")));
    };
    refused([] { barrier(); });
    refused([] { all_reduce(torch::ones({1})); });
    refused([] { gather(torch::ones({1})); });
    refused([] { data_sampler(numbers(4)); });
    refused([] { sync_params({torch::ones({1})}); });
    EXPECT_EQ(data_sampler(numbers(4), {.distributed = false}), nullptr);
  });
}

TEST(InitProcessGroup, ComparesThePlace) {
  run_workers({.init = false}, [](int rank, int) {
    EXPECT_THAT(
        error_of<ConfigError>([] { init_process_group({.rank = 7, .world_size = 9}); }),
        AllOf(HasSubstr(fmt::format("expected rank {} of 2", rank)), HasSubstr("got rank 7 of 9")));
    init_process_group();
    EXPECT_EQ(get_rank(), rank);
    EXPECT_EQ(get_world_size(), 2);
  });
}

TEST(InitProcessGroup, AgainAfterCleanup) {
  run_workers({.count = 2}, [](int rank, int) {
    cleanup();
    EXPECT_FALSE(is_initialized());
    init_process_group({.backend = "gloo"});
    EXPECT_EQ(all_reduce(torch::tensor(rank + 1)).item<int>(), 3);
  });
}

TEST(InitProcessGroup, RefusesWhatMakesNoSense) {
  const auto refused = [](const ProcessGroupOptions& options) {
    return error_of<ConfigError>([&] { init_process_group(options); });
  };
  EXPECT_THAT(refused({.rank = 1, .world_size = 2}),
              AllOf(HasSubstr("rank 1 of 2"), HasSubstr("port")));
  EXPECT_THAT(refused({.world_size = 2}), HasSubstr("rank ? of 2"));
  EXPECT_THAT(refused({.reduction = "quick"}), HasSubstr("expected ordered or fast, got 'quick'"));
  EXPECT_THAT(refused({.rank = 1, .port = 4711}), HasSubstr("a rank only"));
  EXPECT_THAT(refused({.port = 4711}), HasSubstr("got none"));
  EXPECT_THAT(refused({.rank = 2, .world_size = 2, .port = 4711}), HasSubstr("got 2 of 2"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2, .port = 70000}), HasSubstr("70000"));
  EXPECT_FALSE(is_initialized());
}

// Runs `body` in processes that have nothing in common but the rendezvous in their options.
void meet_in_processes(int size, const std::function<void(int rank)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork_with_autograd();
    if (pid == 0) {
      int code = 1;
      std::thread([&] {
        try {
          body(rank);
          code = ::testing::Test::HasFailure() ? 1 : 0;
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
      }).join();
      ::_exit(code);
    }
    children.push_back(pid);
  }
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    int status = -1;
    ::waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
}

TEST(InitProcessGroup, MeetsAtAnAddress) {
  for (const char* backend : {"auto", "gloo"}) {
    const int port = find_free_port();
    meet_in_processes(3, [&](int rank) {
      init_process_group({.rank = rank,
                          .world_size = 3,
                          .backend = backend,
                          .port = port,
                          .timeout = std::chrono::seconds(20)});
      EXPECT_EQ(get_rank(), rank);
      EXPECT_EQ(all_reduce(torch::tensor(rank + 1)).item<int>(), 6);
      cleanup();
      EXPECT_EQ(get_rank(), 0);
    });
  }
}

// launch() is called on each of two hosts, and one process group includes the workers of both.
TEST(InitProcessGroup, JoinsTheWorkersOfSeveralLaunches) {
  const int port = find_free_port();
  meet_in_processes(2, [&](int host) {
    launch(
        [&](int rank, int) {
          init_process_group({.rank = 2 * host + rank, .world_size = 4, .port = port});
          if (get_rank() != 2 * host + rank) throw Error("rank {}", get_rank());
          const int sum = all_reduce(torch::tensor(1 << get_rank())).item<int>();
          if (sum != 15) throw Error("a sum of {}", sum);
        },
        {.workers = 2, .timeout = std::chrono::seconds(20)});
  });
}

TEST(InitProcessGroup, TurnsAStrangerAway) {
  const int port = find_free_port();
  meet_in_processes(2, [&](int rank) {
    const auto error = error_of<CommError>([&] {
      init_process_group({.rank = rank,
                          .world_size = 2,
                          .port = port,
                          .token = rank == 0 ? "ours" : "theirs",
                          .timeout = std::chrono::milliseconds(1500),
                          .join_timeout = std::chrono::milliseconds(1500)});
    });
    if (rank == 1) {
      EXPECT_THAT(error, HasSubstr("token"));
    }
    EXPECT_NE(error, "");
    EXPECT_FALSE(is_initialized());
  });
}

TEST(InitProcessGroup, TakesALaunchersPlace) {
  const int port = find_free_port();
  meet_in_processes(2, [&](int rank) {
    const Variables launcher({{"RANK", fmt::to_string(rank)},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", fmt::to_string(rank)},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", fmt::to_string(port)},
                              {"TORCHELASTIC_RUN_ID", "dist_test"}});
    EXPECT_THAT(error_of<ConfigError>([] { barrier(); }), HasSubstr("one of 2"));
    const pid_t before = ::getpid();
    int calls = 0;
    launch(
        [&](int given, int world_size) {
          ++calls;
          EXPECT_EQ(::getpid(), before);
          EXPECT_EQ(given, rank);
          EXPECT_EQ(world_size, 2);
          init_process_group({.rank = given, .world_size = world_size});
          EXPECT_EQ(all_reduce(torch::tensor(given + 1)).item<int>(), 3);
        },
        {.workers = 5, .timeout = std::chrono::seconds(20)});
    EXPECT_EQ(calls, 1);
  });
}

// A rank that gives up tells the other ranks, so that they do not wait for it.
TEST(Abort, EndsTheOthersWait) {
  const int port = find_free_port();
  const auto start = std::chrono::steady_clock::now();
  meet_in_processes(2, [&](int rank) {
    init_process_group({.rank = rank, .world_size = 2, .backend = "gloo", .port = port});
    barrier();
    if (rank == 1) {
      abort("out of memory");
      EXPECT_FALSE(is_initialized());
      return;
    }
    EXPECT_THAT(error_of<WorkerError>([] { barrier(); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("out of memory")));
    abort("then so do I");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(DataSampler, SplitsLikePyTorch) {
  run_workers({.count = 3}, [](int rank, int) {
    const auto whole = data_sampler(numbers(10), {.shuffle = false});
    const std::vector<std::vector<std::int64_t>> expected = {
        {0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}};
    EXPECT_EQ(whole->indices(1), expected[static_cast<std::size_t>(rank)]);
    const data::DistributedSampler same(
        10, {.num_replicas = 3, .rank = rank, .shuffle = true, .seed = 5});
    EXPECT_EQ(data_sampler(numbers(10), {.seed = 5})->indices(4), same.indices(4));
    EXPECT_EQ(data_sampler(numbers(10))->size(), 4);
  });
}

TEST(DataSampler, WithoutPaddingNoSampleComesTwice) {
  run_workers({.count = 3}, [](int rank, int) {
    for (const std::int64_t count : {0, 1, 2, 3, 10, 11, 12}) {
      const auto sampler = data_sampler(numbers(count), {.pad = false});
      const auto mine = sampler->indices(1);
      EXPECT_EQ(sampler->size(), static_cast<std::int64_t>(mine.size()));
      std::vector<std::int64_t> all;
      for (const auto& part : all_gather(torch::tensor(mine, torch::kInt64))) {
        for (const double index : values(part)) all.push_back(static_cast<std::int64_t>(index));
      }
      std::ranges::sort(all);
      std::vector<std::int64_t> each(static_cast<std::size_t>(count));
      std::iota(each.begin(), each.end(), 0);
      EXPECT_EQ(all, each) << "rank " << rank;
    }
  });
}

TEST(DataSampler, ServesALoader) {
  run_workers({.count = 2}, [](int rank, int) {
    const auto dataset = numbers(7);
    const data::Loader loader(
        dataset, {.batch_size = 3, .sampler = data_sampler(dataset, {.shuffle = false})});
    auto stream = loader.stream();
    const Batch first = *stream.next();
    EXPECT_THAT(values(first["features"]), ElementsAre(rank, rank + 2, rank + 4));
    EXPECT_EQ(stream.next()->size(), 1);
  });
  EXPECT_THAT(error_of<ConfigError>([] { data_sampler(nullptr); }), HasSubstr("null"));
}

class Collectives : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Collectives, ::testing::Values("shm", "gloo"));

TEST_P(Collectives, Reduce) {
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    const double mine = rank + 1;
    const auto tensor = torch::tensor({mine, -mine}, torch::kFloat64);
    const auto returned = reduce(tensor);
    EXPECT_TRUE(returned.is_same(tensor));
    EXPECT_EQ(values(tensor),
              rank == 0 ? std::vector<double>({6, -6}) : std::vector<double>({mine, -mine}));
    EXPECT_EQ(reduce(torch::tensor(mine), ReduceOp::kMax, 2).item<double>(), mine < 3 ? mine : 3);
  });
}

TEST_P(Collectives, AllReduce) {
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    const auto all = [&](ReduceOp op) {
      return all_reduce(torch::tensor(rank + 2.0, torch::kFloat64), op).item<double>();
    };
    EXPECT_EQ(all(ReduceOp::kSum), 9);
    EXPECT_EQ(all(ReduceOp::kMean), 3);
    EXPECT_EQ(all(ReduceOp::kMin), 2);
    EXPECT_EQ(all(ReduceOp::kMax), 4);
    EXPECT_EQ(all(ReduceOp::kProduct), 24);
    EXPECT_EQ(all_reduce(torch::tensor(true)).item<int>(), 1);
  });
}

TEST_P(Collectives, GatherOfDifferentLengths) {
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    const auto mine = torch::full({rank, 2}, rank);
    const auto there = gather(mine);
    EXPECT_EQ(there.size(), rank == 0 ? 3U : 0U);
    const auto everywhere = all_gather(mine);
    ASSERT_EQ(everywhere.size(), 3U);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(everywhere[static_cast<std::size_t>(i)].equal(torch::full({i, 2}, i)));
      if (rank > 0) continue;
      EXPECT_TRUE(there[static_cast<std::size_t>(i)].equal(torch::full({i, 2}, i)));
    }
  });
}

TEST_P(Collectives, BroadcastAndSyncParams) {
  run_workers({.count = 2, .backend = GetParam()}, [](int rank, int) {
    EXPECT_EQ(broadcast(torch::tensor(rank), 1).item<int>(), 1);
    const auto a = torch::full({3, 2}, rank, torch::kFloat32).t();  // not contiguous
    const auto b = torch::full({2}, rank + 5, torch::requires_grad().dtype(torch::kFloat64));
    sync_params({a, b});
    EXPECT_TRUE(a.equal(torch::zeros({2, 3})));
    EXPECT_THAT(values(b.detach()), ElementsAre(5, 5));
    torch::manual_seed(static_cast<std::uint64_t>(rank));
    const torch::nn::BatchNorm1d norm(2);
    norm->running_mean.fill_(rank + 7);
    sync_params(Model(norm));
    EXPECT_THAT(values(norm->running_mean), ElementsAre(7, 7));
  });
}

TEST_P(Collectives, PrintInOrder) {
  ::testing::internal::CaptureStdout();
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    print_in_order(rank == 1 ? "" : fmt::format("rank {}\n  second line", rank));
    print_primary("{} of {}", get_rank(), get_world_size());
  });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "rank 0\n  second line\nrank 2\n  second line\n0 of 3\n");
}

TEST(Dist, TheDeviceIsTheCpuWhereThereIsNoGpu) {
  if (gpu_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_TRUE(get_device().is_cpu());
}

TEST(Dist, FindsAFreePort) {
  const int port = find_free_port();
  EXPECT_GT(port, 1023);
  EXPECT_LT(port, 65536);
}

}  // namespace
}  // namespace lockstep::dist
