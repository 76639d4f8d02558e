#include "lockstep/engine/replicas.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/local.h"
#include "lockstep/comm/shared.h"
#include "lockstep/comm/world.h"
#include "lockstep/compute/autograd_probe.h"
#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

NamedTensors rows(const std::string& name, double value) {
  NamedTensors tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.emplace_back(fmt::format("{}.{}", name, i),
                         torch::full({300 + i}, value).requires_grad_());
  }
  return tensors;
}

// Two groups of parameters that are updated in turns or together, one that is not trained, and a
// buffer. Ranks other than rank 0 begin with other values.
struct Networks {
  explicit Networks(const comm::Communicator& comm)
      : offset(comm.is_primary() ? 0.0 : 50.0),
        first(rows("first", 1 + offset)),
        second(rows("second", 2 + offset)),
        teacher{{"teacher", torch::full({5}, 3 + offset)}},
        buffer(torch::full({4}, 4 + offset)) {}

  ReplicaTensors tensors(bool own_backward) const {
    return {.trained = {{first, own_backward}, {second, own_backward}},
            .untrained = teacher,
            .buffers = {{"buffer", buffer}}};
  }
  std::string hash() const {
    NamedTensors all = first;
    for (const auto& part : {second, teacher, NamedTensors{{"buffer", buffer}}}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return weights_hash(all);
  }

  double offset;
  NamedTensors first, second, teacher;
  torch::Tensor buffer;
};

torch::Tensor loss_of_group(const NamedTensors& parameters, int step, int shard) {
  torch::Tensor sum = torch::zeros({});
  for (const auto& [name, tensor] : parameters) {
    sum = sum + (tensor.square() * torch::cos(torch::arange(tensor.numel()) + step + shard)).sum();
  }
  return sum;
}

struct GroupCase {
  std::string backend = "auto";
  bool share_memory = true;
  bool together = false;  // one update of both groups
};

std::string trained_groups(comm::Communicator& comm, const GroupCase& how) {
  Networks networks(comm);
  Replicas replicas(networks.tensors(!how.together), comm,
                    {.shards = 4,
                     .share_memory = how.share_memory,
                     .bucket_bytes = 1000,
                     .one_batch_per_update = true});
  const auto one = optim::OptimizerSpec(optim::Adam{.lr = 0.1}).make(replicas[0].parameters());
  const auto two = optim::OptimizerSpec(optim::SGD{.lr = 0.1}).make(replicas[1].parameters());
  const std::vector<TrainedReplica> both = {{replicas[0], *one}, {replicas[1], *two}};
  const auto shards = replicas[0].shards();
  const auto phase = [&](std::span<const TrainedReplica> some, int step, const auto& loss) {
    for (int local = 0; local < shards.count(); ++local) {
      for (const auto& item : some) item.replica.begin_shard(local, true);
      replicas.buffers().begin_shard(local);
      networks.buffer.add_(step + shards.begin + local);
      const torch::Tensor value = loss(shards.begin + local);
      for (const auto& item : some) item.replica.before_backward();
      value.backward();
      for (const auto& item : some) item.replica.end_shard(local);
      replicas.buffers().end_shard(local);
    }
    update(some, {.clip_norm = 10.0, .buffers = &replicas.buffers()});
  };
  for (int step = 0; step < 3; ++step) {
    const auto first = [&](int shard) { return loss_of_group(networks.first, step, shard); };
    const auto second = [&](int shard) { return loss_of_group(networks.second, step, shard); };
    if (how.together) {
      phase(both, step, [&](int shard) { return first(shard) + second(shard); });
    } else {
      phase(std::span(both).first(1), step, first);
      phase(std::span(both).last(1), step, second);
    }
  }
  const std::string hash = networks.hash();
  replicas.finish();
  EXPECT_EQ(networks.hash(), hash);
  return hash;
}

TEST(Replicas, SeveralGroupsHaveTheSameBitsForAnyNumberOfRanks) {
  for (const bool together : {false, true}) {
    comm::Local alone;
    const std::string expected = trained_groups(alone, {.together = together});
    for (const GroupCase& how :
         {GroupCase{.together = together}, GroupCase{.share_memory = false, .together = together},
          GroupCase{.backend = "gloo", .together = together}}) {
      run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
        const auto world = comm::World::of_host_group(host_group, {.backend = how.backend});
        EXPECT_EQ(trained_groups(world->communicator(), how), expected)
            << how.backend << " " << how.share_memory << " " << together;
        world->communicator().barrier();
      });
    }
  }
}

TEST(Replicas, GroupsThatAreUpdatedTogetherAreClippedByTheirCommonNorm) {
  comm::Local alone;
  const NamedTensors a{{"a", torch::zeros({1}).requires_grad_()}};
  const NamedTensors b{{"b", torch::zeros({1}).requires_grad_()}};
  Replicas replicas({.trained = {{a, false}, {b, false}}}, alone, {});
  const auto one = optim::OptimizerSpec(optim::SGD{.lr = 1}).make(replicas[0].parameters());
  const auto two = optim::OptimizerSpec(optim::SGD{.lr = 1}).make(replicas[1].parameters());
  const TrainedReplica both[] = {{replicas[0], *one}, {replicas[1], *two}};
  for (const auto& item : both) item.replica.begin_shard(0, true);
  (3 * a[0].second + 4 * b[0].second).sum().backward();
  for (const auto& item : both) item.replica.end_shard(0);
  EXPECT_DOUBLE_EQ(*update(both, {.clip_norm = 1.0}).norm, 5.0);
  EXPECT_NEAR(a[0].second.item<double>(), -3.0 / 5, 1e-5);
  EXPECT_NEAR(b[0].second.item<double>(), -4.0 / 5, 1e-5);
}

TEST(Replicas, AChangeReachesEveryTensorOfEveryRank) {
  for (const bool share_memory : {false, true}) {
    run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
      comm::Shared comm(host_group);
      Networks networks(comm);
      Replicas replicas(networks.tensors(true), comm, {.shards = 2, .share_memory = share_memory});
      EXPECT_EQ(networks.teacher[0].second[0].item<double>(), 3.0) << "rank 0's";
      replicas.change([&] {
        for (const auto& tensors : {networks.first, networks.second, networks.teacher}) {
          for (const auto& [name, tensor] : tensors) torch::Tensor(tensor).mul_(2);
        }
        networks.buffer.mul_(2);
      });
      EXPECT_EQ(networks.first[2].second[0].item<double>(), 2.0) << "changed once";
      EXPECT_EQ(networks.second[0].second[0].item<double>(), 4.0);
      EXPECT_EQ(networks.teacher[0].second[0].item<double>(), 6.0);
      EXPECT_EQ(networks.buffer[0].item<double>(), 8.0);
      replicas.finish();
      comm.barrier();
    });
  }
}

// set_data() and torch::load() give a parameter other memory than that in which the run began. The
// parameters are those of a teacher, and a frozen one of a network that is trained.
TEST(Replicas, AChangeMayReplaceTheMemoryOfAFrozenParameter) {
  for (const bool share_memory : {false, true}) {
    run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
      comm::Shared comm(host_group);
      Networks networks(comm);
      networks.first.emplace_back("frozen", torch::zeros({5}));
      Replicas replicas(networks.tensors(true), comm, {.shards = 2, .share_memory = share_memory});
      const torch::Tensor changed[] = {networks.teacher[0].second, networks.first.back().second};
      replicas.change([&] {
        for (torch::Tensor tensor : changed) {
          tensor.set_data(torch::full({5}, 7.0 + networks.offset));
        }
      });
      for (const auto& tensor : changed) {
        EXPECT_TRUE(tensor.eq(7).all().item<bool>()) << "rank 0's " << share_memory;
      }
      replicas.finish();
      for (const auto& tensor : changed) EXPECT_TRUE(tensor.eq(7).all().item<bool>()) << "still";
      comm.barrier();
    });
  }
}

// Rank 0 starts its update late, after all buckets were reduced. The other ranks must wait for its
// buffers, not only for its gradients.
TEST(Replicas, EveryRankHasTheBuffersOfTheFirstShardAfterAnUpdate) {
  for (const bool share_memory : {false, true}) {
    run_ranks({.size = 2, .probe = compute::autograd_works}, [&](process::HostGroup& host_group) {
      comm::Shared comm(host_group);
      NamedTensors parameters;
      for (int i = 0; i < 3; ++i) {
        parameters.emplace_back(std::to_string(i), torch::ones({300}).requires_grad_());
      }
      torch::Tensor buffer = torch::zeros({64});
      Replicas replicas({.trained = {{parameters}}, .buffers = {{"buffer", buffer}}}, comm,
                        {.shards = 2, .share_memory = share_memory, .bucket_bytes = 400});
      Replica& replica = replicas[0];
      const auto optimizer = optim::OptimizerSpec(optim::SGD{.lr = 0.1}).make(replica.parameters());
      for (int step = 1; step <= 50; ++step) {
        replica.begin_shard(0, true);
        buffer.fill_(1000 * host_group.rank() + step);
        torch::Tensor loss = torch::zeros({});
        for (const auto& [name, parameter] : parameters) loss = loss + parameter.sum();
        replica.before_backward();
        loss.backward();
        replica.end_shard(0);
        if (host_group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const TrainedReplica all[] = {{replica, *optimizer}};
        update(all, {.buffers = &replicas.buffers()});
        ASSERT_TRUE(buffer.eq(step).all().item<bool>()) << "step " << step << " " << share_memory;
      }
      replicas.finish();
    });
  }
}

TEST(Replicas, RefusesModelsThatDiffer) {
  const std::string error = error_of_ranks({.size = 3}, [](process::HostGroup& host_group) {
    const auto world = comm::World::of_host_group(host_group, {});
    const NamedTensors parameters{
        {"0.weight", torch::rand({3}).requires_grad_()},
        {"1.weight", torch::rand({host_group.rank() == 2 ? 5 : 4}).requires_grad_()}};
    const Replicas replicas({.trained = {{parameters}}}, world->communicator(), {.shards = 3});
  });
  EXPECT_THAT(error, testing::HasSubstr("ranks 0 and 2 differ"));
  EXPECT_THAT(error, testing::HasSubstr("1.weight"));
}

// Rank 0 of a second attempt has trained its parameters, so they have no gaps any more. A new
// worker has them as the user made them.
TEST(Replicas, AParameterWithGapsIsTheSameModelAsOneWithout) {
  for (const bool transposed : {false, true}) {
    const std::string error = error_of_ranks({.size = 2}, [=](process::HostGroup& host_group) {
      const auto world = comm::World::of_host_group(host_group, {});
      const torch::Tensor large = torch::rand({4, 6});
      const torch::Tensor other = transposed ? torch::rand({4, 4}).t() : large.narrow(1, 0, 4);
      const torch::Tensor mine = host_group.rank() == 1 ? other : torch::rand({4, 4});
      const NamedTensors parameters{{"weight", mine.detach().requires_grad_()}};
      const Replicas replicas({.trained = {{parameters}}}, world->communicator(), {.shards = 2});
    });
    if (transposed) {
      EXPECT_THAT(error, testing::HasSubstr("with strides [1, 4]")) << "another order of values";
    } else {
      EXPECT_EQ(error, "");
    }
  }
}

}  // namespace
}  // namespace lockstep
