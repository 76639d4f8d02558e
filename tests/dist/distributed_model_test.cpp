#include "lockstep/dist/distributed_model.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/compute/checkpointed.h"
#include "lockstep/compute/switches.h"
#include "lockstep/dist/objects.h"
#include "lockstep/state/hash.h"
#include "tests/dist/workers.h"

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::nn::Sequential make_model(std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

torch::nn::Sequential plain_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

// A model of small whole numbers: sums of them are exact, so their order does not matter.
torch::nn::Sequential whole_numbers() {
  torch::manual_seed(4);
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
  torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(torch::randint(-3, 4, parameter.sizes()));
  }
  return net;
}

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

// The mean over the samples, without any other division.
torch::Tensor exact_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return (output - target).square().sum(1).mean();
}

// All ranks have the same bits. Otherwise their weights would drift apart with each step.
void expect_same_bits_on_all_ranks(const torch::nn::Sequential& net) {
  for (const auto& parameter : net->parameters()) {
    const auto all = all_gather(parameter.grad());
    for (const auto& other : all) EXPECT_TRUE(other.equal(all.front()));
  }
}

void expect_equal_grads(const torch::nn::Sequential& one, const torch::nn::Sequential& other) {
  const auto left = one->parameters();
  const auto right = other->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].grad().defined(), right[i].grad().defined()) << i;
    if (left[i].grad().defined()) {
      EXPECT_TRUE(left[i].grad().equal(right[i].grad())) << i;
    }
  }
}

// One parameter per bucket.
constexpr DistributedModelOptions kManyBuckets{.bucket_bytes = 1};

TEST(DistributedModel, GoesOnWithTheFirstRanksWeights) {
  const std::string expected = weights_hash(Model(make_model(0)).weights());
  run_workers({.count = 3}, [&](int rank, int) {
    const auto model = prepare_ddp_model(make_model(static_cast<std::uint64_t>(rank)));
    EXPECT_EQ(weights_hash(model.model().weights()), expected);
  });
}

TEST(DistributedModel, BackwardGivesTheBitsOfAverageGradients) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const DistributedModelOptions& options : {kManyBuckets, DistributedModelOptions()}) {
      run_workers({.count = 3, .backend = backend}, [&](int rank, int) {
        auto net = plain_model();
        auto by_hand = plain_model();
        const auto model = prepare_ddp_model(net, options);
        torch::manual_seed(static_cast<std::uint64_t>(rank));
        const auto x = torch::randn({rank + 2, 3});
        const auto y = torch::randn({rank + 2, 2});
        model.weight(rank + 2);
        loss_of(model(x), y).backward();
        loss_of(by_hand->forward(x), y).backward();
        average_gradients(by_hand->parameters(), rank + 2);
        expect_equal_grads(net, by_hand);
        expect_same_bits_on_all_ranks(net);
      });
    }
  }
}

// Gradients of checkpointed modules reach the buckets as all others do.
TEST(DistributedModel, CheckpointedModulesHaveTheSameGradients) {
  run_workers({.count = 2, .backend = "gloo"}, [&](int rank, int) {
    const auto grads_of = [&](bool checkpoints) {
      torch::manual_seed(3);
      const torch::nn::Linear first(3, 5), second(5, 5), third(5, 2);
      torch::nn::Sequential net;
      if (checkpoints) {
        net = torch::nn::Sequential(checkpointed(first), torch::nn::Tanh(), checkpointed(second),
                                    torch::nn::Tanh(), third);
      } else {
        net = torch::nn::Sequential(first, torch::nn::Tanh(), second, torch::nn::Tanh(), third);
      }
      const compute::WithoutSpeedup plain(compute::Speedup::kPlan);
      const auto model = prepare_ddp_model(net, kManyBuckets);
      torch::manual_seed(static_cast<std::uint64_t>(rank));
      model(torch::randn({4, 3})).square().sum().backward();
      return net;
    };
    expect_equal_grads(grads_of(true), grads_of(false));
  });
}

TEST(DistributedModel, RanksMustRoundAlike) {
  for (const char* backend : {"shm", "gloo"}) {
    run_workers({.count = 3, .backend = backend}, [&](int rank, int) {
      try {
        prepare_ddp_model(plain_model(), {.wire = rank == 2 ? "bf16" : "fp32"});
        ADD_FAILURE() << "accepted";
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("got fp32 on rank 0 and bf16 on rank 2"));
      }
    });
  }
}

// The bits are those of a sum of bfloat16 in the order of the ranks' tree, and the weights of the
// ranks are not rounded: 257 is no bfloat16.
TEST(DistributedModel, RoundedGradientsAreTheSameOverAnyBackend) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{8} << 20}) {
      run_workers({.count = 3, .backend = backend}, [&](int rank, int) {
        auto net = plain_model();
        auto by_hand = plain_model();
        const auto model =
            prepare_ddp_model(net, {.bucket_bytes = bucket_bytes, .wire = Wire::kBf16});
        const auto inputs_of = [](int of) {
          torch::manual_seed(static_cast<std::uint64_t>(of));
          return std::pair(torch::randn({of + 2, 3}), torch::randn({of + 2, 2}));
        };
        const auto weight_of = [](int of) { return 255.0 + 2 * of; };
        const auto [x, y] = inputs_of(rank);
        model.weight(weight_of(rank));
        loss_of(model(x), y).backward();
        std::vector<std::vector<torch::Tensor>> terms;  // by rank and parameter
        for (int of = 0; of < 3; ++of) {
          by_hand->zero_grad();
          const auto [their_x, their_y] = inputs_of(of);
          loss_of(by_hand->forward(their_x), their_y).backward();
          terms.emplace_back();
          for (const auto& parameter : by_hand->parameters()) {
            terms.back().push_back((parameter.grad() * weight_of(of)).to(torch::kBFloat16));
          }
        }
        const auto parameters = by_hand->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const torch::Tensor sum = (terms[0][i] + terms[1][i]) + terms[2][i];
          const torch::NoGradGuard no_grad;
          parameters[i].grad().copy_(sum.to(torch::kFloat32) / (3 * 257.0));
        }
        expect_equal_grads(net, by_hand);
        expect_same_bits_on_all_ranks(net);
      });
    }
  }
}

// Batches of 2, 1, 1 and 0 samples. All numbers are whole, so even the bits are those of one
// process with the whole batch.
TEST(DistributedModel, TheMeanOverSamplesIsThatOfOneProcess) {
  torch::manual_seed(1);
  const auto x = torch::randint(-3, 4, {4, 3}).to(torch::kFloat32);
  const auto y = torch::randint(-3, 4, {4, 2}).to(torch::kFloat32);
  auto alone = whole_numbers();
  exact_loss(alone->forward(x), y).backward();
  run_workers({.count = 4}, [&](int rank, int) {
    auto net = whole_numbers();
    const auto model = prepare_ddp_model(net, kManyBuckets);
    const std::int64_t begin[] = {0, 2, 3, 4, 4};
    const std::int64_t samples = begin[rank + 1] - begin[rank];
    if (samples > 0) {
      model.weight(static_cast<double>(samples));
      exact_loss(model(x.narrow(0, begin[rank], samples)), y.narrow(0, begin[rank], samples))
          .backward();
    } else {
      model.no_batch();
    }
    expect_equal_grads(net, alone);
  });
}

TEST(DistributedModel, KeepsRanksInStep) {
  run_workers({.count = 2}, [](int rank, int) {
    auto net = make_model(static_cast<std::uint64_t>(rank));
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
    const auto model = prepare_ddp_model(net, kManyBuckets);
    torch::manual_seed(100 + static_cast<std::uint64_t>(rank));  // each rank has its own data
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      loss_of(model(torch::randn({8, 3})), torch::randn({8, 2})).backward();
      optimizer.step();
    }
    const auto hashes = all_gather_object(weights_hash(Model(net).parameters()));
    EXPECT_EQ(hashes[0], hashes[1]);
  });
}

TEST(DistributedModel, PassesWithoutSyncOnlyAdd) {
  run_workers({.count = 2}, [](int rank, int) {
    auto net = whole_numbers();
    auto local = whole_numbers();
    const auto model = prepare_ddp_model(net, kManyBuckets);
    const auto x = torch::full({1, 3}, rank + 1.0F);
    const auto y = torch::zeros({1, 2});
    const auto add = [&](const torch::Tensor& output) { exact_loss(output, y).backward(); };
    {
      const auto scope = model.no_sync();
      const auto nested = model.no_sync();
      add(model(x));
      add(local->forward(x));
      expect_equal_grads(net, local);  // it is this rank's gradient
    }
    add(model(2 * x));
    add(local->forward(2 * x));
    average_gradients(local->parameters());
    expect_equal_grads(net, local);
    // Without zero_grad(), the next pass adds to the mean.
    add(model(3 * x));
    add(local->forward(3 * x));
    average_gradients(local->parameters());
    expect_equal_grads(net, local);
  });
}

TEST(DistributedModel, AGraphMayBeUsedTwice) {
  run_workers({.count = 2}, [](int rank, int) {
    auto net = whole_numbers();
    const auto model = prepare_ddp_model(net);
    auto once = whole_numbers();
    const auto x = torch::full({1, 3}, rank + 1.0F);
    const auto y = torch::zeros({1, 2});
    exact_loss(once->forward(x), y).backward();
    average_gradients(once->parameters());
    const auto loss = exact_loss(model(x), y);
    loss.backward({}, /*retain_graph=*/true);
    expect_equal_grads(net, once);
    loss.backward();
    for (auto& parameter : once->parameters()) parameter.grad().mul_(2);
    expect_equal_grads(net, once);
  });
}

// Uses only some of its layers.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    for (const char* name : {"first", "second", "third"}) {
      layers.emplace_back(register_module(name, torch::nn::Linear(1, 1)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers[use](x); }
  torch::Tensor grad(std::size_t layer) const { return layers[layer]->weight.grad(); }

  std::vector<torch::nn::Linear> layers;
  std::size_t use = 0;
};
TORCH_MODULE(Branches);

TEST(DistributedModel, ParametersThatNoRankUsedKeepTheirGradient) {
  run_workers({.count = 2}, [](int rank, int) {
    Branches net;
    const auto model = prepare_ddp_model(net, kManyBuckets);
    const auto x = torch::full({1, 1}, 4.0F);
    net->use = rank == 0 ? 0 : 1;
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net->layers[2]->weight.mutable_grad().reset();
      model(x).sum().backward();
      EXPECT_EQ(net->grad(0).item<double>(), 2.0);  // one rank has 4, the other one nothing
      EXPECT_EQ(net->grad(1).item<double>(), 2.0);
      EXPECT_FALSE(net->grad(2).defined());
    }
    // A gradient of the user that no backward() has changed is not touched, even if ranks differ.
    net->layers[2]->weight.mutable_grad() = torch::full({1, 1}, rank + 8.0F);
    model(x).sum().backward();
    EXPECT_EQ(net->grad(2).item<double>(), rank + 8.0);
  });
}

TEST(DistributedModel, AParameterThatWasUsedWithoutSyncIsAveragedToo) {
  run_workers({.count = 2}, [](int rank, int) {
    Branches net;
    const auto model = prepare_ddp_model(net);
    const auto x = torch::full({1, 1}, 4.0F * (rank + 1));
    {
      const auto scope = model.no_sync();
      model(x).sum().backward();
      EXPECT_EQ(net->grad(0).item<double>(), 4.0 * (rank + 1));
    }
    net->use = 1;
    model(x).sum().backward();
    EXPECT_EQ(net->grad(0).item<double>(), 6.0);
    EXPECT_EQ(net->grad(1).item<double>(), 6.0);
  });
}

TEST(DistributedModel, ParametersMayBeFrozenAndUnfrozen) {
  run_workers({.count = 2}, [](int rank, int) {
    auto net = whole_numbers();
    auto& first = net->ptr<torch::nn::LinearImpl>(0)->weight;
    first.requires_grad_(false);
    const auto model = prepare_ddp_model(net, kManyBuckets);
    const auto x = torch::full({1, 3}, rank + 1.0F);
    const auto pass = [&] {
      net->zero_grad();
      model(x).sum().backward();
    };
    pass();
    EXPECT_FALSE(first.grad().defined());
    first.requires_grad_(true);
    pass();
    ASSERT_TRUE(first.grad().defined());
    expect_same_bits_on_all_ranks(net);
    first.mutable_grad().reset();
    first.requires_grad_(false);
    pass();
    EXPECT_FALSE(first.grad().defined());
  });
}

TEST(DistributedModel, ARankWithoutABatchCountsItsAccumulatedGradients) {
  run_workers({.count = 2}, [](int rank, int) {
    Branches net;
    const auto model = prepare_ddp_model(net);
    {
      const auto scope = model.no_sync();
      model(torch::full({1, 1}, 2.0F)).sum().backward();
      model.no_batch();  // nothing is sent in this scope
    }
    model.weight(1);
    if (rank == 0) {
      model(torch::full({1, 1}, 4.0F)).sum().backward();
    } else {
      model.no_batch();
    }
    EXPECT_EQ(net->grad(0).item<double>(), 4.0);  // the mean of 2 + 4 and 2
    // Without weight(), the rank does not count.
    net->zero_grad();
    if (rank == 0) {
      model(torch::full({1, 1}, 4.0F)).sum().backward();
    } else {
      model.no_batch();
    }
    EXPECT_EQ(net->grad(0).item<double>(), 4.0);
    // All ranks are without a batch: nothing is changed.
    model.no_batch();
    EXPECT_EQ(net->grad(0).item<double>(), 4.0);
  });
}

TEST(DistributedModel, AMissingPassIsAnErrorAndNoHang) {
  const std::string error = error_of([] {
    run_workers({.count = 2}, [](int rank, int) {
      Branches net;
      const auto model = prepare_ddp_model(net);
      if (rank == 0) model(torch::ones({1, 1})).sum().backward();
      cleanup();
    });
  });
  EXPECT_THAT(error, AllOf(HasSubstr("reduction of gradients"), HasSubstr("barrier")));
}

TEST(DistributedModel, BuffersOfTheFirstRankAreUsedInTraining) {
  for (const bool broadcasts : {true, false}) {
    run_workers({.count = 2}, [&](int rank, int) {
      auto net = make_model(1);
      const auto model = prepare_ddp_model(net, {.broadcast_buffers = broadcasts});
      const auto mean = net->ptr(1)->as<torch::nn::BatchNorm1d>()->running_mean;
      const auto same = [&] {
        const auto all = all_gather(mean);
        return all[0].equal(all[1]);
      };
      const auto x = torch::arange(12).view({4, 3}).to(torch::kFloat32);
      const auto own = x * (rank + 1);
      model(own).sum().backward();
      EXPECT_FALSE(same());
      model.model().train(false);
      if (rank == 0) model(x);  // an evaluation sends nothing, so one rank may do it alone
      EXPECT_FALSE(same());
      model.model().train(true);
      model(x);  // all ranks start with rank 0's buffers and see the same batch
      EXPECT_EQ(same(), broadcasts);
      model(own);
      model(x);  // there was no averaged backward() before: nothing is sent
      EXPECT_FALSE(same());

      model(own).sum().backward();
      const auto of_first = broadcast(mean.clone());
      if (rank == 0) {
        model(own).sum().backward();
      } else {
        model.no_batch();  // receives the buffers that rank 0's forward pass sends
        EXPECT_EQ(mean.equal(of_first), broadcasts);
      }
    });
  }
}

// Two tensors or a batch in, two tensors out.
struct PairNetImpl : torch::nn::Module {
  explicit PairNetImpl(const torch::nn::Sequential& net) : net(register_module("net", net)) {}
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& s) {
    const auto y = net->forward(x);
    return {y, y * s};
  }
  std::pair<torch::Tensor, torch::Tensor> forward(const Batch& batch) {
    return forward(batch["x"], batch["s"]);
  }
  torch::nn::Sequential net;
};
TORCH_MODULE(PairNet);

TEST(DistributedModel, SeveralInputsAndOutputsAreAveragedToo) {
  run_workers({.count = 2}, [&](int rank, int) {
    auto net = plain_model();
    auto by_hand = plain_model();
    const auto model = prepare_ddp_model(PairNet(net));
    const auto x = torch::arange(12).view({4, 3}).to(torch::kFloat32) * (rank + 1);
    const auto s = torch::full({1}, 2.0F);
    loss_of(model.outputs(x, s)[1], x.narrow(1, 0, 2)).backward();
    loss_of(model.outputs(Batch{{"x", x}, {"s", s}})[1], x.narrow(1, 0, 2)).backward();
    for (int pass = 0; pass < 2; ++pass) {
      loss_of(by_hand->forward(x) * 2, x.narrow(1, 0, 2)).backward();
      average_gradients(by_hand->parameters());
    }
    expect_equal_grads(net, by_hand);
    expect_same_bits_on_all_ranks(net);
  });
}

TEST(DistributedModel, BuffersAreSentBeforeOutputsToo) {
  run_workers({.count = 2}, [&](int rank, int) {
    auto net = make_model(1);
    const auto model = prepare_ddp_model(PairNet(net));
    const auto mean = net->ptr(1)->as<torch::nn::BatchNorm1d>()->running_mean;
    const auto x = torch::arange(12).view({4, 3}).to(torch::kFloat32);
    const auto s = torch::full({1}, 2.0F);
    model.outputs(x * (rank + 1), s)[0].sum().backward();
    model.outputs(x, s);  // all ranks start with rank 0's buffers
    const auto all = all_gather(mean);
    EXPECT_TRUE(all[0].equal(all[1]));
  });
}

TEST(DistributedModel, TwoModelsInOneBackward) {
  run_workers({.count = 2}, [](int rank, int) {
    auto generator = whole_numbers();
    Branches critic;
    const auto make = prepare_ddp_model(generator, kManyBuckets);
    const auto judge = prepare_ddp_model(critic, kManyBuckets);
    const auto x = torch::full({1, 3}, rank + 1.0F);
    for (int step = 0; step < 5; ++step) {
      generator->zero_grad();
      critic->zero_grad();
      judge(make(x).narrow(1, 0, 1)).sum().backward();
      const auto all = all_gather(critic->grad(0));
      EXPECT_TRUE(all[0].equal(all[1]));
      expect_same_bits_on_all_ranks(generator);
    }
  });
}

// Both models have buffers, which their forward passes send before the messages of backward().
TEST(DistributedModel, ARankMayHaveNoBatchForTwoModelsInOneBackward) {
  run_workers({.count = 2}, [](int rank, int) {
    auto generator = make_model(1);
    torch::nn::Sequential critic(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
    const auto make = prepare_ddp_model(generator, kManyBuckets);
    const auto judge = prepare_ddp_model(critic, kManyBuckets);
    torch::manual_seed(5);
    for (int step = 0; step < 4; ++step) {
      generator->zero_grad();
      critic->zero_grad();
      if (rank == step % 2) {
        judge(make(torch::randn({4, 3}))).square().sum().backward();
      } else {
        no_batch({make, judge});
      }
      expect_same_bits_on_all_ranks(generator);
      expect_same_bits_on_all_ranks(critic);
    }
  });
}

TEST(DistributedModel, ADestroyedModelRemovesItsHooks) {
  run_workers({.count = 2}, [](int rank, int) {
    Branches net;
    {
      const auto model = prepare_ddp_model(net);
      const auto copy = model;
    }
    net->forward(torch::full({1, 1}, rank + 1.0F)).sum().backward();
    EXPECT_EQ(net->grad(0).item<double>(), rank + 1.0);
    average_gradients(net->parameters());  // its parameters are free again
    EXPECT_EQ(net->grad(0).item<double>(), 1.5);
    net->zero_grad();
    const auto again = prepare_ddp_model(net);
    again(torch::full({1, 1}, rank + 1.0F)).sum().backward();
    EXPECT_EQ(net->grad(0).item<double>(), 1.5);
  });
}

TEST(DistributedModel, AloneItIsThePlainModel) {
  auto net = plain_model();
  auto plain = plain_model();
  const auto model = prepare_ddp_model(net);
  const auto x = torch::ones({2, 3});
  const auto y = torch::zeros({2, 2});
  model.weight(7);
  loss_of(model(x), y).backward();
  loss_of(plain->forward(x), y).backward();
  expect_equal_grads(net, plain);
  model.no_batch();
  expect_equal_grads(net, plain);
}

TEST(DistributedModel, RefusesWhatMakesNoSense) {
  Branches net;
  const auto model = prepare_ddp_model(net);
  EXPECT_THAT(error_of<ConfigError>([&] { model.weight(-1); }), HasSubstr("-1"));
  EXPECT_THAT(error_of<ConfigError>([&] { model.weight(std::nan("")); }), HasSubstr("nan"));
  EXPECT_THAT(error_of<ConfigError>([&] { prepare_ddp_model(net); }),
              AllOf(HasSubstr("first.weight"), HasSubstr("another DistributedModel")));
  EXPECT_THAT(error_of<ConfigError>([] { prepare_ddp_model(Model()); }), HasSubstr("none"));
  EXPECT_THAT(error_of<ConfigError>([&] { average_gradients(net->parameters()); }),
              AllOf(HasSubstr("DistributedModel"), HasSubstr("weight()")));
}

// The result is the gradient of the mean over all samples, for batches of 3, 1 and 0 samples. The
// tolerance allows for float32 sums in another order.
TEST(AverageGradients, IsTheGradientOfTheWholeBatch) {
  torch::manual_seed(1);
  const auto x = torch::randn({4, 3});
  const auto y = torch::randn({4, 2});
  auto whole = plain_model();
  loss_of(whole->forward(x), y).backward();
  for (const char* backend : {"shm", "gloo"}) {
    run_workers({.count = 3, .backend = backend}, [&](int rank, int) {
      auto net = plain_model();
      const std::int64_t begin = rank == 0 ? 0 : 3;
      const std::int64_t samples = rank == 0 ? 3 : rank == 1 ? 1 : 0;
      if (samples > 0) {
        loss_of(net->forward(x.narrow(0, begin, samples)), y.narrow(0, begin, samples)).backward();
      }
      average_gradients(net->parameters(), static_cast<double>(samples));
      const auto expected = whole->parameters();
      const auto parameters = net->parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(parameters[i].grad().defined());
        EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i].grad(), 1e-5, 1e-7));
      }
      expect_same_bits_on_all_ranks(net);
    });
  }
}

TEST(AverageGradients, IsAMeanWithoutWeights) {
  run_workers({.count = 2}, [](int rank, int) {
    auto single = torch::zeros({2}, torch::requires_grad());
    auto precise = torch::zeros({2}, torch::requires_grad().dtype(torch::kFloat64));
    auto frozen = torch::zeros({2});
    auto unused = torch::zeros({2}, torch::requires_grad());
    auto only_here = torch::zeros({2}, torch::requires_grad());
    single.mutable_grad() = torch::full({2}, rank + 1.0F);
    precise.mutable_grad() = torch::full({2}, rank + 1.0, torch::kFloat64);
    if (rank == 1) only_here.mutable_grad() = torch::full({2}, 4.0F);
    average_gradients({single, precise, frozen, unused, only_here});
    EXPECT_EQ(single.grad()[1].item<double>(), 1.5);
    EXPECT_EQ(precise.grad()[1].item<double>(), 1.5);
    EXPECT_EQ(only_here.grad()[1].item<double>(), 2.0);
    EXPECT_FALSE(frozen.grad().defined());
    EXPECT_FALSE(unused.grad().defined());
  });
}

TEST(AverageGradients, NoRankHadSamples) {
  run_workers({.count = 2}, [](int, int) {
    auto parameter = torch::zeros({2}, torch::requires_grad());
    average_gradients({parameter}, 0);
    EXPECT_FALSE(parameter.grad().defined());
  });
}

TEST(AverageGradients, AloneChangesNothing) {
  auto parameter = torch::zeros({2}, torch::requires_grad());
  parameter.mutable_grad() = torch::full({2}, 3.0F);
  average_gradients({parameter}, 5);
  EXPECT_EQ(parameter.grad()[0].item<double>(), 3.0);
}

TEST(AverageGradients, RefusesWhatMakesNoSense) {
  const auto parameter = torch::zeros({2}, torch::requires_grad());
  EXPECT_THAT(error_of<ConfigError>([&] { average_gradients({parameter}, -1); }), HasSubstr("-1"));
  EXPECT_THAT(error_of<ConfigError>([&] { average_gradients({parameter}, std::nan("")); }),
              HasSubstr("nan"));
  run_workers({.init = false}, [&](int, int) {
    EXPECT_THAT(error_of<ConfigError>([&] { average_gradients({parameter}); }),
                HasSubstr("init_process_group"));
  });
}

}  // namespace
}  // namespace lockstep::dist
