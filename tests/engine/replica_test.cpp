#include "lockstep/engine/replica.h"

#include <chrono>
#include <limits>
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
  Wire wire = Wire::kFp32;
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
                   .one_batch_per_update = how.one_batch_per_update,
                   .wire = how.wire});
  const auto optimizer = how.optimizer.make(replica.parameters());
  int observed = 0;
  NamedTensors sums;  // of the last step, as rank 0 observes them
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
    update(all, {.scale_of = [](auto) { return 0.25; },
                 .clip_value = 2.0,
                 .clip_norm = 10.0,
                 .observe =
                     [&](const SummedGradients& gradients) {
                       ++observed;
                       sums.clear();
                       for (const auto& [name, sum, scale] : gradients) {
                         EXPECT_EQ(scale, 0.25);
                         sums.emplace_back(name, sum.clone());
                       }
                     }});
  }
  EXPECT_EQ(observed, comm.is_primary() ? 3 : 0);
  const std::string hash = weights_hash(parameters);
  replica.finish();
  EXPECT_EQ(weights_hash(parameters), hash);
  return hash + comm.broadcast_bytes(weights_hash(sums));
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

// A gradient of one shard is not finite in some steps. Every rank must skip the same updates, also
// if it has summed another part. The weights are those of a run without these steps.
std::string trained_with_skips(comm::Communicator& comm, const Case& how, bool with_bad_steps) {
  torch::manual_seed(comm.rank());
  NamedTensors parameters;
  for (const std::int64_t size : {5000, 300}) {
    parameters.emplace_back(std::to_string(size), torch::rand({size}).requires_grad_());
  }
  Replica replica(parameters, comm,
                  {.shards = how.shards,
                   .share_memory = how.share_memory,
                   .overlap = false,
                   .one_batch_per_update = true});
  const auto optimizer = optim::OptimizerSpec(optim::Adam{.lr = 0.1}).make(replica.parameters());
  for (int step = 0; step < 6; ++step) {
    const bool is_bad = step % 3 == 1;
    if (is_bad && !with_bad_steps) continue;
    for (int local = 0; local < replica.shards().count(); ++local) {
      const int shard = replica.shards().begin + local;
      replica.begin_shard(local, true);
      torch::manual_seed(1000 * step + shard);
      // The last shard's, so that the other ranks do not see it in their own gradients.
      const bool bad_here = is_bad && shard == how.shards - 1;
      torch::Tensor loss = (parameters[0].second * torch::randn({5000})).sum();
      loss = loss + parameters[1].second.sum();
      replica.before_backward();
      // In step 1 the smaller parameter gets infinity, in step 4 the larger one gets NaN.
      loss.backward();
      if (bad_here) {
        const torch::NoGradGuard no_grad;
        parameters[step == 1 ? 1 : 0].second.mutable_grad()[17] =
            step == 1 ? std::numeric_limits<float>::infinity()
                      : std::numeric_limits<float>::quiet_NaN();
      }
      replica.end_shard(local);
    }
    const TrainedReplica all[] = {{replica, *optimizer}};
    const UpdateResult result = update(all, {.scale_of = [](auto) { return 0.25; },
                                             .clip_value = 2.0,
                                             .clip_norm = 10.0,
                                             .skip_non_finite = true});
    EXPECT_EQ(result.skipped, is_bad) << "step " << step << ", rank " << comm.rank();
    EXPECT_EQ(result.norm.has_value(), !is_bad);
  }
  const std::string hash = weights_hash(parameters);
  replica.finish();
  return hash;
}

TEST(Replica, AnUpdateThatIsNotFiniteIsSkippedByAllRanks) {
  comm::Local alone;
  const std::string expected = trained_with_skips(alone, {}, false);
  EXPECT_EQ(trained_with_skips(alone, {}, true), expected);
  // Gradients are changed after backward(), so they must not be sent during it.
  for (const Case& how : {Case{}, Case{.backend = "gloo", .share_memory = false}}) {
    run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
      const auto world = comm::World::of_host_group(host_group, {.backend = how.backend});
      EXPECT_EQ(trained_with_skips(world->communicator(), how, true), expected) << how.backend;
      world->communicator().barrier();
    });
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

// Gradients that are rounded to bfloat16 have the same bits, too: over shared memory and Gloo, in
// one message and in buckets, and however a rank adds up its shards.
TEST(Replica, RoundedGradientsHaveTheSameBits) {
  for (const int shards : {4, 7}) {
    comm::Local alone;
    const std::string expected = trained(alone, {.shards = shards, .wire = Wire::kBf16});
    EXPECT_NE(expected, trained(alone, {.shards = shards}));
    EXPECT_EQ(trained(alone, {.shards = shards, .one_batch_per_update = true, .wire = Wire::kBf16}),
              expected);
    for (Case how : {Case{}, Case{.share_memory = false}, Case{.backend = "gloo"},
                     Case{.backend = "gloo", .bucket_bytes = 1000}}) {
      how.shards = shards;
      how.wire = Wire::kBf16;
      for (const bool one_batch : {false, true}) {
        how.one_batch_per_update = one_batch;
        for (const int size : {2, 3}) {
          run_ranks({.size = size, .probe = compute::autograd_works},
                    [&](process::HostGroup& host_group) {
                      const auto world =
                          comm::World::of_host_group(host_group, {.backend = how.backend});
                      EXPECT_EQ(trained(world->communicator(), how), expected)
                          << how.backend << " " << how.share_memory << " " << how.bucket_bytes;
                      world->communicator().barrier();
                    });
        }
      }
    }
  }
}

TEST(Replica, TheGradientOfASingleShardIsRounded) {
  comm::Local alone;
  const NamedTensors parameters{{"float", torch::zeros({3}).requires_grad_()},
                                {"double", torch::zeros({3}, torch::kFloat64).requires_grad_()}};
  Replica replica(parameters, alone, {.shards = 1, .wire = Wire::kBf16});
  const auto optimizer = optim::OptimizerSpec(optim::SGD{.lr = 1.0}).make(replica.parameters());
  replica.begin_shard(0, true);
  replica.before_backward();
  // 1 + 2^-8 is in the middle of two bfloat16 numbers, of which 1 is even.
  const double middle = 1 + 1.0 / 256;
  (parameters[0].second * torch::tensor({middle, 1.0, 1 + 3.0 / 256})).sum().backward();
  (parameters[1].second * middle).sum().backward();
  replica.end_shard(0);
  const TrainedReplica all[] = {{replica, *optimizer}};
  update(all, {});
  EXPECT_TRUE(parameters[0].second.detach().equal(torch::tensor({-1.0F, -1.0F, -1.015625F})));
  EXPECT_TRUE(parameters[1].second.detach().equal(torch::full({3}, -middle, torch::kFloat64)));
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
