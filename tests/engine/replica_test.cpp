#include "lockstep/engine/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
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
};

// Some steps of a small model, each shard with its own made-up gradients; the last of its three
// parameters gets none.
std::string trained(comm::Communicator& comm, const Case& how) {
  torch::manual_seed(comm.rank());  // rank 0's values count
  NamedTensors parameters;
  for (const std::int64_t size : {5000, 300, 7}) {
    parameters.emplace_back(std::to_string(size), torch::rand({size}).requires_grad_());
  }
  Replica replica(
      parameters, {}, comm,
      {.shards = how.shards, .share_memory = how.share_memory, .bucket_bytes = how.bucket_bytes});
  const auto optimizer = optim::OptimizerSpec(optim::Adam{.lr = 0.1}).make(replica.parameters());
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
    replica.update(*optimizer, {.scale = 0.25, .clip_value = 2.0, .clip_norm = 10.0});
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
      run_ranks({.size = size, .probe = compute::autograd_works}, [&](launch::Team& team) {
        const auto world = comm::World::of_team(team, {.backend = how.backend});
        EXPECT_EQ(trained(world->communicator(), how), expected)
            << how.backend << " " << how.share_memory << " " << how.bucket_bytes;
        world->communicator().barrier();
      });
    }
  }
}

TEST(Replica, RefusesModelsThatDiffer) {
  const std::string error = error_of_ranks({.size = 3}, [](launch::Team& team) {
    const auto world = comm::World::of_team(team, {});
    const NamedTensors parameters{
        {"0.weight", torch::rand({3}).requires_grad_()},
        {"1.weight", torch::rand({team.rank() == 2 ? 5 : 4}).requires_grad_()}};
    const Replica replica(parameters, {}, world->communicator(), {.shards = 3});
  });
  EXPECT_THAT(error, testing::HasSubstr("ranks 0 and 2 differ"));
  EXPECT_THAT(error, testing::HasSubstr("1.weight"));
}

}  // namespace
}  // namespace lockstep
