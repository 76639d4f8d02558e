#include "lockstep/engine/replica.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include "lockstep/comm/local.h"
#include "lockstep/comm/shared.h"
#include "lockstep/comm/world.h"
#include "lockstep/compute/autograd_probe.h"
#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

struct Case {
  int shards = 4;
  std::string backend = "auto";
  bool share_memory = true;
  std::int64_t bucket_bytes = 8 << 20;
  bool one_batch_per_update = false;
  optim::OptimizerSpec optimizer = optim::Adam{.lr = 0.1};
};

// Trains a small model for some steps. Each shard has its own random gradients. The last of the
// three parameters gets none.
std::string trained(comm::Communicator& comm, const Case& how) {
  torch::manual_seed(comm.rank());  // rank 0's values count
  NamedTensors parameters;
  for (const std::int64_t size : {5000, 300, 7}) {
    parameters.emplace_back(std::to_string(size), torch::rand({size}).requires_grad_());
  }
  Replica replica(parameters, comm,
                  {.shards = how.shards,
                   .share_memory = how.share_memory,
                   .bucket_bytes = how.bucket_bytes,
                   .one_batch_per_update = how.one_batch_per_update});
  const auto optimizer = how.optimizer.make(replica.parameters());
  for (int step = 0; step < 3; ++step) {
    for (int local = 0; local < replica.shards().count(); ++local) {
      replica.begin_shard(local, true);
      torch::manual_seed(1000 * step + replica.shards().begin + local);
      torch::Tensor loss = torch::zeros({});
      for (int i = 0; i < 2; ++i) {
        const torch::Tensor& parameter = parameters[static_cast<std::size_t>(i)].second;
        loss = loss + (parameter * torch::randn({parameter.numel()})).sum();
      }
      replica.before_backward();
      loss.backward();
      replica.end_shard(local);
    }
    const TrainedReplica all[] = {{replica, *optimizer}};
    update(all, {.scale_of = [](auto) { return 0.25; }, .clip_value = 2.0, .clip_norm = 10.0});
  }
  const std::string hash = weights_hash(parameters);
  replica.finish();
  EXPECT_EQ(weights_hash(parameters), hash);
  return hash;
}

TEST(Replica, GivesTheSameBitsHoweverItIsKeptInStep) {
  comm::Local alone;
  const std::string expected = trained(alone, {});
  for (const Case& how :
       {Case{}, Case{.share_memory = false}, Case{.share_memory = false, .bucket_bytes = 1000},
        Case{.backend = "gloo"}, Case{.backend = "gloo", .bucket_bytes = 1000}}) {
    for (const int size : {2, 3}) {
      run_ranks(
          {.size = size, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
            const auto world = comm::World::of_host_group(host_group, {.backend = how.backend});
            EXPECT_EQ(trained(world->communicator(), how), expected)
                << how.backend << " " << how.share_memory << " " << how.bucket_bytes;
            world->communicator().barrier();
          });
    }
  }
}

// Lamb needs norms of whole parameters, of which each rank has a part. Lookahead changes weights
// after the step.
TEST(Replica, GivesTheSameBitsWithOptimizersOfSeveralPasses) {
  for (const optim::OptimizerSpec& optimizer : std::vector<optim::OptimizerSpec>{
           optim::Lamb{.lr = 0.1, .weight_decay = 0.1},
           optim::Lookahead{.optimizer = optim::Lion{.lr = 0.1}, .k = 2}}) {
    comm::Local alone;
    const std::string expected = trained(alone, {.optimizer = optimizer});
    EXPECT_NE(expected, trained(alone, {}));
    for (const Case& how :
         {Case{.optimizer = optimizer}, Case{.share_memory = false, .optimizer = optimizer}}) {
      run_ranks({.size = 3, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
        const auto world = comm::World::of_host_group(host_group, {});
        EXPECT_EQ(trained(world->communicator(), how), expected) << how.share_memory;
        world->communicator().barrier();
      });
    }
  }
}

// The bits depend neither on how many shards a worker has nor on how many sets it uses to add up
// their gradients.
TEST(Replica, AddsUpShardsAsTheyComeToTheSameBits) {
  for (const int shards : {3, 8, 11}) {
    comm::Local alone;
    const std::string expected = trained(alone, {.shards = shards});
    EXPECT_EQ(trained(alone, {.shards = shards, .one_batch_per_update = true}), expected);
    for (const Case& how :
         {Case{.shards = shards, .one_batch_per_update = true},
          Case{.shards = shards, .share_memory = false, .one_batch_per_update = true},
          Case{.shards = shards,
          .share_memory = false,
          .bucket_bytes = 1000,
          .one_batch_per_update = true}}) {
      for (const int size : {2, 3}) {
        run_ranks({.size = size, .probe = compute::autograd_works},
                  [&](process::HostGroup& host_group) {
                    const auto world = comm::World::of_host_group(host_group, {});
                    EXPECT_EQ(trained(world->communicator(), how), expected)
                        << shards << " " << how.share_memory << " " << how.bucket_bytes;
                    world->communicator().barrier();
                  });
      }
    }
  }
}

TEST(Replica, NeedsFewSetsOfGradients) {
  comm::Local alone;
  const NamedTensors parameters{{"weight", torch::rand({3}).requires_grad_()}};
  Replica few(parameters, alone, {.shards = 8, .one_batch_per_update = true});
  EXPECT_EQ(few.parameters().buffers()[0].grad_sets.size(), 4U);
}

// A parameter that one shard of one rank used is updated on all ranks. A parameter that no shard
// used is not changed. The reference is one process with torch's optimizer, in which unused
// parameters have no gradient.
struct Uneven {
  Uneven() {
    for (const char* name : {"always", "second shard", "never", "paused", "late"}) {
      const auto size = static_cast<std::int64_t>(300 + 70 * parameters.size());
      parameters.emplace_back(name, torch::cos(torch::arange(size) * 0.7).requires_grad_());
    }
    parameters[4].second.requires_grad_(false);
  }
  void freeze(int step) const {
    parameters[3].second.requires_grad_(step != 2 && step != 3);
    if (step == 2) parameters[4].second.requires_grad_(true);
  }
  torch::Tensor loss(int step, int shard) const {
    torch::Tensor sum = torch::zeros({});
    for (const std::size_t i : {0, 1, 3, 4}) {
      if (i == 1 && (shard != 1 || step % 2 == 0)) continue;
      const torch::Tensor& parameter = parameters[i].second;
      sum = sum +
            (parameter * torch::sin(torch::arange(parameter.numel()) * 0.3 + step + shard)).sum();
    }
    return sum;
  }
  NamedTensors parameters;
};

TEST(Replica, LeavesAloneWhatNoShardUsed) {
  constexpr int kShards = 3;
  const Uneven reference;
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : reference.parameters) tensors.push_back(tensor);
  torch::optim::Adam adam(tensors, torch::optim::AdamOptions(0.1).weight_decay(0.1));
  for (int step = 1; step <= 5; ++step) {
    reference.freeze(step);
    for (const auto& tensor : tensors) tensor.mutable_grad().reset();
    for (int shard = 0; shard < kShards; ++shard) reference.loss(step, shard).backward();
    adam.step();
  }
  EXPECT_TRUE(tensors[2].detach().equal(Uneven().parameters[2].second.detach()));
  for (const Case& how :
       {Case{}, Case{.share_memory = false}, Case{.share_memory = false, .bucket_bytes = 1000},
        Case{.backend = "gloo"}}) {
    run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
      const auto world = comm::World::of_host_group(host_group, {.backend = how.backend});
      const Uneven ours;
      Replica replica(ours.parameters, world->communicator(),
                      {.shards = kShards,
                       .share_memory = how.share_memory,
                       .bucket_bytes = how.bucket_bytes,
                       .one_batch_per_update = true});
      const auto optimizer = optim::OptimizerSpec(optim::Adam{.lr = 0.1, .weight_decay = 0.1})
                                 .make(replica.parameters());
      for (int step = 1; step <= 5; ++step) {
        ours.freeze(step);
        for (int local = 0; local < replica.shards().count(); ++local) {
          replica.begin_shard(local, true);
          const torch::Tensor loss = ours.loss(step, replica.shards().begin + local);
          replica.before_backward();
          loss.backward();
          replica.end_shard(local);
        }
        const TrainedReplica all[] = {{replica, *optimizer}};
        update(all, {});
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours.parameters[i].second, tensors[i], 1e-5, 1e-6))
            << ours.parameters[i].first << " " << how.backend << how.share_memory
            << how.bucket_bytes;
      }
      EXPECT_TRUE(ours.parameters[2].second.detach().equal(tensors[2].detach()));
      replica.finish();
      world->communicator().barrier();
    });
  }
}

}  // namespace
}  // namespace lockstep
