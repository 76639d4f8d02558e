// NCCL between GPUs gives the results of the CPU. Forked ranks have one GPU each.
#include "lockstep/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/world.h"
#include "lockstep/engine/devices.h"
#include "tests/comm/collectives.h"
#include "tests/support/gpu.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclOnGpus : public TwoGpus {
 protected:
  void SetUp() override {
    TwoGpus::SetUp();
    if (!IsSkipped() && nccl_planes() == nullptr)
      GTEST_SKIP() << "NOT RUN ON A GPU: this build has no NCCL";
  }

  static void on_gpus(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
    const int ranks = std::min(static_cast<int>(usable_gpus().count), 4);
    run_ranks({.size = ranks}, [&](process::HostGroup& host_group) {
      const auto world = World::of_host_group(host_group, options);
      body(world->communicator());
    });
  }
};

torch::Device gpu_of(const Communicator& comm) {
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(comm.rank())};
}

TEST_F(NcclOnGpus, OrderedSumsAreThoseOfTheCpu) {
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
    comm.barrier();
  });
}

TEST_F(NcclOnGpus, FastSumsAreCloseToThoseOfTheCpu) {
  on_gpus({.backend = "nccl", .reduction = "fast"}, [](Communicator& comm) {
    const torch::Tensor tensor = of_rank(comm.rank(), 70'001, torch::kFloat32).to(gpu_of(comm));
    comm.all_reduce(tensor);
    const auto right =
        reduced_by_one(random_tensors(comm.size(), 70'001, torch::kFloat32), ReduceOp::kSum);
    // A few roundings of the sum of at most four numbers.
    EXPECT_TRUE(torch::allclose(tensor.cpu(), right, 1e-5, 1e-5));
    comm.barrier();
  });
}

TEST_F(NcclOnGpus, SendsAndGathersTensors) {
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
    comm.barrier();
  });
}

// A stream that is busy when the collective is called: the result is that of the tensor as it will
// be.
TEST_F(NcclOnGpus, WaitsForTheStreamThatComputesTheTensor) {
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
    comm.barrier();
  });
}

TEST_F(NcclOnGpus, ARankThatDoesNotComeIsNamed) {
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
