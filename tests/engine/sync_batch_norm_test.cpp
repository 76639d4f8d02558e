#include "lockstep/engine/sync_batch_norm.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared.h"
#include "lockstep/compute/autograd_probe.h"
#include "lockstep/compute/checkpointed.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

struct Outcome {
  torch::Tensor output, input_grad, weight_grad, bias_grad, mean, variance;
};

Outcome batch_norm(const torch::Tensor& rows, const torch::Tensor& factors) {
  const torch::Tensor input = rows.clone().requires_grad_();
  const torch::Tensor weight = torch::tensor({1.0, 2.0, -1.0}).requires_grad_();
  const torch::Tensor bias = torch::tensor({0.5, 0.0, 1.0}).requires_grad_();
  torch::Tensor mean = torch::zeros({3});
  torch::Tensor variance = torch::ones({3});
  const torch::Tensor output =
      torch::batch_norm(input, weight, bias, mean, variance, true, 0.1, 1e-5, false);
  (output * factors).sum().backward();
  return {output.detach(), input.grad(), weight.grad(), bias.grad(), mean, variance};
}

// With autocast the input has 16 bits. The statistics must not be rounded to them.
TEST(SyncBatchNorm, ComputesInputsOf16BitsInFloat) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    torch::manual_seed(5);
    const torch::Tensor rows = (torch::randn({10, 3, 4, 2}) + 100).to(torch::kBFloat16);
    const torch::Tensor factors = torch::randn({10, 3, 4, 2});
    const Outcome whole = batch_norm(rows.to(torch::kFloat32), factors);
    const auto own = [&](const torch::Tensor& all) {
      return all.narrow(0, host_group.rank() == 0 ? 0 : 7, host_group.rank() == 0 ? 7 : 3);
    };
    const SyncBatchNormScope scope(&comm);
    const Outcome part = batch_norm(own(rows), own(factors));
    EXPECT_EQ(part.output.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(part.input_grad.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(part.mean.scalar_type(), torch::kFloat32);
    EXPECT_TRUE(torch::allclose(part.mean, whole.mean, 1e-5));
    // One rounding of the result: bf16 has 8 bits.
    EXPECT_TRUE(torch::allclose(part.output.to(torch::kFloat32), own(whole.output), 4e-3, 1e-3));
    EXPECT_TRUE(
        torch::allclose(part.input_grad.to(torch::kFloat32), own(whole.input_grad), 2e-2, 2e-2));
  });
}

// Two workers with unequal shares of a batch get the same result as one worker with all of it.
TEST(SyncBatchNorm, IsThatOfTheWholeBatch) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    torch::manual_seed(5);
    const torch::Tensor rows = torch::randn({10, 3, 4, 2}) * 3 + 1;
    const torch::Tensor factors = torch::randn({10, 3, 4, 2});
    const Outcome whole = batch_norm(rows, factors);
    const std::int64_t first = host_group.rank() == 0 ? 0 : 7;
    const std::int64_t count = host_group.rank() == 0 ? 7 : 3;
    const auto own = [&](const torch::Tensor& all) { return all.narrow(0, first, count); };
    const auto close = [](const torch::Tensor& a, const torch::Tensor& b) {
      return torch::allclose(a, b, 1e-4, 1e-5);
    };
    {
      const SyncBatchNormScope scope(&comm);
      const Outcome part = batch_norm(own(rows), own(factors));
      EXPECT_TRUE(close(part.output, own(whole.output)));
      EXPECT_TRUE(close(part.input_grad, own(whole.input_grad)));
      EXPECT_TRUE(close(part.mean, whole.mean));
      EXPECT_TRUE(close(part.variance, whole.variance));
      // Each worker has its own gradients of the parameters. Their sum is that of the whole batch.
      comm.all_reduce(part.weight_grad);
      comm.all_reduce(part.bias_grad);
      EXPECT_TRUE(close(part.weight_grad, whole.weight_grad));
      EXPECT_TRUE(close(part.bias_grad, whole.bias_grad));
    }
    EXPECT_TRUE(batch_norm(rows, factors).output.equal(whole.output)) << "outside of the scope";
  });
}

// Layers that are affine or not, with running statistics or not, give the same result as one worker
// with all rows.
TEST(SyncBatchNorm, TakesLayersWithoutWeightsOrStatistics) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    torch::manual_seed(5);
    const torch::Tensor rows = torch::randn({6, 3, 4}) * 3 + 1;
    const torch::Tensor factors = torch::randn({6, 3, 4});
    const auto own = [&](const torch::Tensor& all) {
      return all.narrow(0, host_group.rank() * 3, 3);
    };
    for (const bool affine : {false, true}) {
      for (const bool tracks : {false, true}) {
        SCOPED_TRACE(fmt::format("affine {}, track_running_stats {}", affine, tracks));
        const auto options =
            torch::nn::BatchNorm1dOptions(3).affine(affine).track_running_stats(tracks);
        const auto run = [&](const torch::Tensor& part, const torch::Tensor& by) {
          torch::nn::BatchNorm1d layer(options);
          const torch::Tensor input = part.clone().requires_grad_();
          const torch::Tensor output = layer(input);
          (output * by).sum().backward();
          return std::pair(output.detach(), input.grad());
        };
        const auto [whole, whole_grad] = run(rows, factors);
        const SyncBatchNormScope scope(&comm);
        const auto [part, part_grad] = run(own(rows), own(factors));
        EXPECT_TRUE(torch::allclose(part, own(whole), 1e-4, 1e-5));
        EXPECT_TRUE(torch::allclose(part_grad, own(whole_grad), 1e-4, 1e-5));
      }
    }
    // In evaluation batch norm is not collective: one of the workers may have no batch left.
    torch::nn::BatchNorm1d layer(torch::nn::BatchNorm1dOptions(3).track_running_stats(false));
    layer->eval();
    const torch::NoGradGuard no_grad;
    const torch::Tensor alone = layer(own(rows));
    const SyncBatchNormScope scope(&comm);
    if (host_group.rank() == 0) {
      EXPECT_TRUE(layer(own(rows)).equal(alone));
    }
  });
}

// On a GPU, backward() runs in a thread of autograd, which has no scope of its own.
TEST(SyncBatchNorm, IsTheSameIfItIsComputedAgainInAnotherThread) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    torch::manual_seed(5 + host_group.rank());
    const torch::Tensor rows = torch::randn({4, 3, 5}) * 3 + 1;
    const torch::Tensor factors = torch::randn({4, 3, 5});
    const SyncBatchNormScope scope(&comm);
    const auto run = [&](bool checkpoints) {
      torch::nn::Sequential layer((torch::nn::BatchNorm1d(3)));
      const torch::Tensor input = rows.clone().requires_grad_();
      const torch::Tensor output =
          checkpoints ? checkpointed(layer)->forward(input) : layer->forward(input);
      std::thread([&] { (output * factors).sum().backward(); }).join();
      return std::vector{output.detach(), input.grad(), layer->parameters()[0].grad(),
                         layer->buffers()[0]};
    };
    const auto plain = run(false);
    const auto again = run(true);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(again[i].equal(plain[i])) << i;
  });
}

TEST(SyncBatchNorm, NamesTooFewValues) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    const SyncBatchNormScope scope(&comm);
    const bool is_first = host_group.rank() == 0;
    // A layer would refuse a single row before it asks the other workers.
    const auto run = [](std::int64_t rows) {
      return torch::batch_norm(torch::rand({rows, 3}), {}, {}, {}, {}, true, 0.1, 1e-5, false);
    };
    // A worker with several values need not know of the others.
    EXPECT_TRUE(run(is_first ? 1 : 5).isfinite().all().item<bool>());
    EXPECT_TRUE(run(1).isfinite().all().item<bool>()) << "there are two";
    try {
      run(is_first ? 1 : 0);
      ADD_FAILURE() << "expected an error";
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), "sync_bn: expected more than one value per channel, got 1");
    }
  });
}

TEST(SyncBatchNorm, LeavesInstanceNormAlone) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    torch::manual_seed(host_group.rank());
    const torch::Tensor rows = torch::randn({4, 3, 5, 5}) * 3 + 1;
    const auto run = [&] {
      torch::nn::InstanceNorm2d layer(
          torch::nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true));
      const torch::Tensor input = rows.clone().requires_grad_();
      const torch::Tensor output = layer(input);
      output.square().sum().backward();
      return std::vector{output.detach(), input.grad(), layer->weight.grad(), layer->running_mean};
    };
    const auto before = run();
    const SyncBatchNormScope scope(&comm);
    const auto after = run();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
  });
}

}  // namespace
}  // namespace lockstep
