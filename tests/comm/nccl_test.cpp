#include "lockstep/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/world.h"
#include "tests/comm/collectives.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// The number of GPUs, counted in another process: a process that asks cannot fork workers that use
// them.
int visible_gpus() {
  RankProcess counting([] { return static_cast<int>(torch::cuda::device_count()); });
  return counting.wait();
}

TEST(Nccl, IsABackendIfTheBuildHasIt) {
  if (nccl_planes() == nullptr) {
    EXPECT_THAT(available_backends(), Not(Contains("nccl")));
    EXPECT_THAT(message_of<ConfigError>([] { check_backend("nccl"); }),
                AllOf(HasSubstr("got 'nccl'"), HasSubstr("build of Lockstep has no such backend"),
                      HasSubstr("docs/guide/installing.md")));
    GTEST_SKIP() << "the rest: this build has no NCCL";
  }
  EXPECT_EQ(nccl_planes()->name(), "nccl");
  EXPECT_THAT(available_backends(), Contains("nccl"));
  check_backend("nccl");
  EXPECT_TRUE(nccl_planes()->takes(torch::Device(torch::kCUDA, 0)));
  EXPECT_FALSE(nccl_planes()->takes(torch::kCPU));
}

TEST(Nccl, SaysThatThereIsNoGpu) {
  if (nccl_planes() == nullptr) GTEST_SKIP() << "this build has no NCCL";
  EXPECT_THAT(message_of<ConfigError>([] { check_device("nccl", torch::kCPU); }),
              AllOf(HasSubstr("nccl"), HasSubstr("'cpu'"), HasSubstr("auto")));
  if (visible_gpus() > 0) GTEST_SKIP() << "the rest: this machine has a GPU";
  RankProcess asking([] {
    const std::string text =
        message_of<ConfigError>([] { nccl_planes()->identity(torch::Device(torch::kCUDA, 0)); });
    EXPECT_THAT(text, HasSubstr("cuda:0 is not there: this process sees 0 GPUs"));
    return text.empty() ? 1 : 0;
  });
  EXPECT_EQ(asking.wait(), 0);
}

// Tensors on the CPU do not use the data plane, and it is not started for them.
TEST(Nccl, RunsOnTheCpuDoNotUseIt) {
  if (nccl_planes() == nullptr) GTEST_SKIP() << "this build has no NCCL";
  run_ranks(2, [](process::HostGroup& host_group) {
    const auto world = World::of_host_group(host_group, {});
    check_sum_parts(world->communicator());
    EXPECT_EQ(world->communicator().name(), "shm");
  });
}

}  // namespace
}  // namespace lockstep::comm
