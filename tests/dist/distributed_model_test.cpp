#include "lockstep/dist/distributed_model.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/state/hash.h"
#include "tests/dist/workers.h"

namespace lockstep::dist {
namespace {

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

torch::Tensor loss_of(const Model& model, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::mse_loss(model(x), y);
}

TEST(DistributedModel, GoesOnWithTheFirstRanksWeights) {
  const std::string expected = weights_hash(Model(make_model(0)).weights());
  run_workers({.count = 3}, [&](int rank, int) {
    const auto model = prepare_ddp_model(make_model(static_cast<std::uint64_t>(rank)));
    EXPECT_EQ(weights_hash(model.model().weights()), expected);
  });
}

// The result is the gradient of the mean over all samples, for batches of 3, 1 and 0 samples. The
// tolerance allows for float32 sums in another order.
TEST(AverageGradients, IsTheGradientOfTheWholeBatch) {
  torch::manual_seed(1);
  const auto x = torch::randn({4, 3});
  const auto y = torch::randn({4, 2});
  const auto whole = plain_model();
  loss_of(Model(whole), x, y).backward();
  for (const char* backend : {"shm", "gloo"}) {
    run_workers({.count = 3, .backend = backend}, [&](int rank, int) {
      const auto net = plain_model();
      const auto model = prepare_ddp_model(net);
      const std::int64_t begin = rank == 0 ? 0 : 3;
      const std::int64_t samples = rank == 0 ? 3 : rank == 1 ? 1 : 0;
      if (samples > 0) {
        loss_of(model.model(), x.narrow(0, begin, samples), y.narrow(0, begin, samples)).backward();
      }
      model.average_gradients(static_cast<double>(samples));
      const auto expected = whole->parameters();
      const auto parameters = net->parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(parameters[i].grad().defined());
        EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i].grad(), 1e-5, 1e-7));
      }
      // All ranks have the same bits. Otherwise their weights would drift apart with each step.
      const auto all =
          all_gather(torch::cat({parameters[0].grad().flatten(), parameters[1].grad().flatten()}));
      EXPECT_TRUE(all[0].equal(all[1]) && all[0].equal(all[2]));
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

TEST(AverageGradients, KeepsRanksInStep) {
  run_workers({.count = 2}, [](int rank, int) {
    const auto net = make_model(static_cast<std::uint64_t>(rank));
    const auto model = prepare_ddp_model(net);
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
    torch::manual_seed(100 + static_cast<std::uint64_t>(rank));  // each rank has its own data
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      loss_of(model.model(), torch::randn({8, 3}), torch::randn({8, 2})).backward();
      model.average_gradients();
      optimizer.step();
    }
    const auto all = all_gather(net->parameters()[0].detach());
    EXPECT_TRUE(all[0].equal(all[1]));
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
  EXPECT_THAT(error_of<ConfigError>([] { prepare_ddp_model(Model()); }), HasSubstr("none"));
  run_workers({.init = false}, [&](int, int) {
    EXPECT_THAT(error_of<ConfigError>([&] { average_gradients({parameter}); }),
                HasSubstr("init_process_group"));
  });
}

}  // namespace
}  // namespace lockstep::dist
