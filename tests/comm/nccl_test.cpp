#include "lockstep/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/shared.h"
#include "lockstep/comm/two_planes.h"
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

// The tests named Gpu* need GPUs: one for each rank.
void on_gpus(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  run_ranks({.size = std::min(visible_gpus(), 4)}, [&](process::HostGroup& host_group) {
    const auto world = World::of_host_group(host_group, options);
    body(world->communicator());
    world->communicator().barrier();
  });
}

#define SKIP_WITHOUT_GPUS()                                                    \
  if (nccl_planes() == nullptr) GTEST_SKIP() << "gpu: this build has no NCCL"; \
  if (visible_gpus() < 2) GTEST_SKIP() << "gpu: needs two GPUs, this machine has " << visible_gpus()

torch::Device gpu_of(const Communicator& comm) {
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(comm.rank())};
}

TEST(GpuNccl, OrderedSumsAreThoseOfTheCpu) {
  SKIP_WITHOUT_GPUS();
  on_gpus({.backend = "nccl"}, [](Communicator& comm) {
    for (const auto type : kAllTypes) {
      for (const ReduceOp op : kAllOps) {
        for (const std::int64_t count : {1003, 70'001}) {
          const torch::Tensor tensor = of_rank(comm.rank(), count, type).to(gpu_of(comm));
          comm.all_reduce(tensor, op);
          ASSERT_TRUE(
              same_bits(tensor, reduced_by_one(random_tensors(comm.size(), count, type), op)))
              << c10::toString(type) << ", operation " << static_cast<int>(op);
        }
      }
    }
    for (const std::int64_t count : {1003, 400'003}) {
      for (int leaves = 1; leaves <= 9; ++leaves) {
        Parts parts{.leaves = leaves};
        const auto range = leaves_of({.rank = comm.rank(), .size = comm.size()}, leaves);
        for (int leaf = range.begin; leaf < range.end; ++leaf) {
          parts.tensors.push_back(of_rank(leaf, count, torch::kFloat32).to(gpu_of(comm)));
        }
        const torch::Tensor out = torch::empty({count}, gpu_of(comm));
        comm.sum_parts(parts, out);
        ASSERT_TRUE(same_bits(
            out, reduced_by_one(random_tensors(leaves, count, torch::kFloat32), ReduceOp::kSum)))
            << leaves << " leaves of " << count;
      }
    }
    EXPECT_EQ(comm.name(), "shm+nccl");
  });
}

TEST(GpuNccl, FastSumsAreCloseToThoseOfTheCpu) {
  SKIP_WITHOUT_GPUS();
  on_gpus({.backend = "nccl", .reduction = "fast"}, [](Communicator& comm) {
    const torch::Tensor tensor = of_rank(comm.rank(), 70'001, torch::kFloat32).to(gpu_of(comm));
    comm.all_reduce(tensor);
    const auto right =
        reduced_by_one(random_tensors(comm.size(), 70'001, torch::kFloat32), ReduceOp::kSum);
    // A few roundings of the sum of at most four numbers.
    EXPECT_TRUE(torch::allclose(tensor.cpu(), right, 1e-5, 1e-5));
  });
}

TEST(GpuNccl, SendsAndGathersTensors) {
  SKIP_WITHOUT_GPUS();
  on_gpus({}, [](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      const torch::Tensor tensor = of_rank(comm.rank(), 5000, torch::kFloat64).to(gpu_of(comm));
      comm.broadcast(tensor, root);
      ASSERT_TRUE(same_bits(tensor, of_rank(root, 5000, torch::kFloat64)));
    }
    const auto all =
        comm.all_gather(of_rank(comm.rank(), 3 * comm.rank(), torch::kFloat32).to(gpu_of(comm)));
    for (int rank = 0; rank < comm.size(); ++rank) {
      const torch::Tensor& theirs = all[static_cast<std::size_t>(rank)];
      EXPECT_EQ(theirs.device(), gpu_of(comm));
      EXPECT_TRUE(same_bits(theirs, of_rank(rank, 3 * rank, torch::kFloat32)));
    }
  });
}

// A stream that is busy when the collective is called: the result is that of the tensor as it will
// be.
TEST(GpuNccl, WaitsForTheStreamThatComputesTheTensor) {
  SKIP_WITHOUT_GPUS();
  on_gpus({}, [](Communicator& comm) {
    const torch::Tensor weight = torch::rand({2000, 2000}, gpu_of(comm));
    for (int round = 0; round < 10; ++round) {
      torch::Tensor product = weight;
      for (int i = 0; i < 20; ++i) product = torch::mm(weight, product).div_(1000);
      const torch::Tensor tensor = torch::ones({1'000'003}, gpu_of(comm));
      tensor.add_((product.sum() * 0).nan_to_num());
      comm.all_reduce(tensor);
      ASSERT_TRUE(tensor.eq(static_cast<float>(comm.size())).all().item<bool>());
    }
  });
}

TEST(GpuNccl, ARankThatDoesNotComeIsNamed) {
  SKIP_WITHOUT_GPUS();
  on_gpus({.timeout = std::chrono::seconds(2)}, [](Communicator& comm) {
    comm.all_reduce(torch::ones({10}, gpu_of(comm)));
    std::string text;
    if (comm.rank() == 1) {
      eventually([&] {
        text = message_of<Error>([&] { comm.check(); });
        return text != "";
      });
    } else {
      text = message_of<Error>([&] { comm.all_reduce(torch::ones({10}, gpu_of(comm))); });
    }
    EXPECT_THAT(text, AllOf(HasSubstr("rank 1"), HasSubstr("collective on GPUs")));
  });
}

}  // namespace
}  // namespace lockstep::comm
