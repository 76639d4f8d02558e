#include "lockstep/engine/distributed.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/engine/devices.h"
#include "lockstep/process/affinity.h"
#include "tests/support/environment_scope.h"
#include "tests/support/fake_gpus.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string error_of(const DistributedDataParallelOptions& options) {
  try {
    DistributedDataParallelEngine engine(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(DistributedEngine, DefaultsAreTheMachines) {
  if (gpu_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const DistributedDataParallelEngine engine;
  EXPECT_EQ(engine.workers(), process::usable_cores());
  EXPECT_EQ(engine.shards(), engine.workers());
  EXPECT_TRUE(engine.device().is_cpu());
  const DistributedDataParallelEngine few({.shards = 1});
  EXPECT_EQ(few.workers(), 1) << "no more workers than shards";
}

TEST(DistributedEngine, RefusesWhatCannotBe) {
  EXPECT_THAT(error_of({.workers = 0}), HasSubstr("workers: expected 1 or more, got 0"));
  EXPECT_THAT(error_of({.workers = 3, .shards = 2}), HasSubstr("got 2 for 3 workers"));
  EXPECT_THAT(error_of({.workers = 2, .shards = 4, .sync_bn = true}), HasSubstr("sync_bn"));
  EXPECT_THAT(error_of({.workers = 1, .world_size = 2}), HasSubstr("port"));
  EXPECT_THAT(error_of({.workers = 2, .port = 99999}), HasSubstr("99999"));
  EXPECT_THAT(error_of({.workers = 2, .port = 4000, .world_size = 2, .first_rank = 1}),
              HasSubstr("first_rank"));
  EXPECT_THAT(error_of({.workers = 2, .reduction = "quick"}),
              HasSubstr("reduction: expected ordered or fast, got 'quick'"));
  // Not in this build, or not for a run on the CPU.
  EXPECT_THAT(error_of({.workers = 2, .backend = "nccl", .device = torch::kCPU}),
              HasSubstr("backend: "));
}

TEST(DistributedEngine, RefusesADeviceThatIsNotThere) {
  const torch::Device far(torch::kCUDA, 99);
  EXPECT_THAT(error_of({.workers = 1, .device = far}), HasSubstr("device: got 'cuda:99'"));
  if (gpu_count() > 0) {
    EXPECT_THAT(error_of({.workers = 2, .device = torch::Device(torch::kCUDA, 0)}),
                HasSubstr("got 'cuda:0' for 2 workers; expected 'cuda'"));
  } else {
    EXPECT_THAT(error_of({.workers = 2, .device = torch::Device(torch::kCUDA)}),
                HasSubstr("there is no GPU to use"));
  }
  EXPECT_EQ(error_of({.workers = 2, .device = torch::kCPU}), "");
}

TEST(DistributedEngine, RunsOnEveryWorkerAndGivesThreadsAndCoresBack) {
  const int threads = torch::get_num_threads();
  const auto cores = process::available_cores();
  const pid_t caller = ::getpid();
  int prepared = 0;
  DistributedDataParallelEngine engine({.workers = 3});
  bool was_caller = false;
  engine.run({.prepare = [&] { ++prepared; },
              .work =
                  [&](comm::Communicator& comm) {
                    was_caller = ::getpid() == caller;
                    if ((comm.rank() == 0) != was_caller) throw Error("rank 0 is the caller");
                    if (prepared != 1) throw Error("prepared {} times", prepared);
                    const auto sum = torch::tensor({static_cast<std::int64_t>(comm.rank())});
                    comm.all_reduce(sum);
                    if (sum.item<std::int64_t>() != 3) throw Error("the sum of ranks is wrong");
                  }});
  EXPECT_TRUE(was_caller);
  EXPECT_EQ(torch::get_num_threads(), threads);
  EXPECT_EQ(process::available_cores(), cores);
}

TEST(DistributedEngine, PinsWorkersThatTakeAllCores) {
  const auto cores = process::available_cores();
  if (cores.size() < 2) GTEST_SKIP() << "this machine has one core";
  DistributedDataParallelEngine engine(
      {.workers = static_cast<int>(cores.size()), .timeout = std::chrono::seconds(30)});
  engine.run({.prepare = [] {},
              .work =
                  [&](comm::Communicator& comm) {
                    const auto own = process::available_cores();
                    if (own != std::vector<int>{cores[static_cast<std::size_t>(comm.rank())]}) {
                      throw Error("rank {} has {} cores", comm.rank(), own.size());
                    }
                  }});
  DistributedDataParallelEngine loose(
      {.workers = 2, .pin = false, .timeout = std::chrono::seconds(30)});
  loose.run({.prepare = [] {},
             .work =
                 [&](comm::Communicator&) {
                   if (process::available_cores() != cores) throw Error("pinned all the same");
                 }});
}

// As `lockstep launch --nnodes MIN:MAX` sets them, so that the bits stay when nodes come and go.
TEST(DistributedEngine, ALauncherFixesShardsAndThreadsUnlessTheProgramDoes) {
  const std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                        {"WORLD_SIZE", "2"},
                                                        {"LOCAL_RANK", "0"},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", "1"},
                                                        {"LOCKSTEP_SHARDS", "6"},
                                                        {"LOCKSTEP_THREADS", "3"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  const DistributedDataParallelEngine launched;
  const DistributedDataParallelEngine chosen({.shards = 4, .threads = 1});
  // At once, and not when the first host is lost.
  const std::string synchronized = error_of({.shards = 2, .sync_bn = true});
  for (const auto& [name, value] : variables) {
    if (!name.starts_with("LOCKSTEP")) ::unsetenv(name.c_str());
  }
  const DistributedDataParallelEngine alone({.workers = 2});
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  EXPECT_EQ(launched.shards(), 6);
  EXPECT_EQ(chosen.shards(), 4);
  EXPECT_THAT(synchronized, HasSubstr("expected a fixed --nnodes"));
  EXPECT_EQ(alone.shards(), 2) << "without a launcher the variables say nothing";
}

// With two GPUs, if this build can use them. Called in a process of its own. Returns 0, or the
// number of the check that failed.
int exit_code_of_two_gpus() {
  const bool has_gpus = torch_has_cuda();
  const auto gpu = [&](torch::DeviceIndex index) {
    return has_gpus ? torch::Device(torch::kCUDA, index) : torch::Device(torch::kCPU);
  };
  const DistributedDataParallelEngine forked;
  if (forked.workers() != (has_gpus ? 2 : process::usable_cores())) return 1;
  if (forked.device() != gpu(0)) return 2;
  // One process cannot give its GPU to two workers.
  if (error_of({.workers = 2, .device = torch::Device(torch::kCUDA, 1)}).empty()) return 3;
  for (const int rank : {0, 1}) {
    const EnvironmentScope launcher(variables_of_rank(rank, 2));
    const DistributedDataParallelEngine launched;
    if (launched.workers() != 2) return 4;
    if (launched.device() != gpu(static_cast<torch::DeviceIndex>(rank))) return 5;
  }
  return cuda_is_started() ? 6 : 0;
}

TEST(DistributedEngineDeathTest, HasOneProcessPerGpu) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const EnvironmentScope scope(with_two_gpus(LOCKSTEP_FAKE_DRIVER));
  EXPECT_EXIT(::_exit(exit_code_of_two_gpus()), ::testing::ExitedWithCode(0), "");
}

TEST(DistributedEngine, SaysWhichVariablesAreMissing) {
  ::setenv("RANK", "0", 1);
  EXPECT_THAT(error_of({}), HasSubstr("WORLD_SIZE"));
  ::unsetenv("RANK");
}

}  // namespace
}  // namespace lockstep
