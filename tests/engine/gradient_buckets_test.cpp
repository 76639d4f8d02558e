#include "lockstep/engine/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/comm/shared.h"
#include "lockstep/compute/autograd_probe.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

// Counts the reductions that begin before backward() is over.
TEST(GradientBuckets, GoOffWhileBackwardStillComputes) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    NamedTensors parameters;
    for (int i = 0; i < 4; ++i) {
      parameters.emplace_back(std::to_string(i), torch::full({100}, i + 1.0).requires_grad_());
    }
    optim::FlatParameters flat(parameters);
    GradientBuckets buckets(flat, comm, {.leaves = 2, .bytes = 400});
    // The second parameter is not used.
    const auto loss = [&] {
      return (parameters[0].second + 2 * parameters[2].second + 3 * parameters[3].second).sum();
    };
    for (int step = 0; step < 3; ++step) {
      flat.zero_grad();
      buckets.arm();
      EXPECT_TRUE(buckets.armed());
      loss().backward();
      flat.collect_grads();
      buckets.finish();
      EXPECT_FALSE(buckets.armed());
      const double expected[] = {2, 0, 4, 6};
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(parameters[static_cast<std::size_t>(i)].second.grad()[7].item<double>(),
                  expected[i]);
      }
    }
    // If the buckets are not armed, backward() sends nothing.
    flat.zero_grad();
    loss().backward();
    EXPECT_EQ(parameters[3].second.grad()[0].item<double>(), 3.0);
  });
}

// A user's function whose backward() sums over the ranks. It runs when some buckets have already
// been sent.
struct SumsInBackward : torch::autograd::Function<SumsInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, std::int64_t comm) {
    context->saved_data["comm"] = comm;
    return input.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& grads) {
    const torch::Tensor sum = grads[0].clone();
    reinterpret_cast<comm::Communicator*>(context->saved_data["comm"].toInt())->all_reduce(sum);
    return {sum, torch::Tensor()};
  }
};

// Three parameters, each with its own bucket. The function is between the last parameter and the
// other two.
struct Chain {
  explicit Chain(comm::Communicator& over) : comm(over) {
    for (int i = 0; i < 3; ++i) {
      parameters.emplace_back(std::to_string(i), torch::full({300}, 2.0).requires_grad_());
    }
  }
  void backward(bool uses_last) {
    const torch::Tensor inner = SumsInBackward::apply(parameters[0].second * parameters[1].second,
                                                      reinterpret_cast<std::int64_t>(&comm));
    (uses_last ? inner * parameters[2].second : inner).sum().backward();
  }
  comm::Communicator& comm;
  NamedTensors parameters;
};

TEST(GradientBuckets, ACollectiveInsideBackwardComesInTurn) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    Chain chain(comm);
    optim::FlatParameters flat(chain.parameters);
    GradientBuckets buckets(flat, comm, {.leaves = 2, .bytes = 400});
    for (int step = 0; step < 200; ++step) {
      flat.zero_grad();
      buckets.arm();
      chain.backward(true);
      flat.collect_grads();
      buckets.finish();
      // The function has already summed the gradients of the first two parameters over both ranks.
      const double expected[] = {16, 16, 8};
      for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_TRUE(chain.parameters[i].second.grad().eq(expected[i]).all().item<bool>()) << step;
      }
    }
  });
}

TEST(GradientBuckets, ACollectiveThatMeetsABucketIsRefusedAndBothAreNamed) {
  const std::string error = error_of_ranks(
      {.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
        comm::Shared comm(host_group);
        Chain chain(comm);
        optim::FlatParameters flat(chain.parameters);
        GradientBuckets buckets(flat, comm, {.leaves = 2, .bytes = 400});
        buckets.arm();
        // Only rank 0 has a gradient of the last parameter, so only its bucket is sent before the
        // function runs.
        chain.backward(host_group.rank() == 0);
        flat.collect_grads();
        buckets.finish();
      });
  EXPECT_THAT(error, testing::HasSubstr("'all_reduce of 1200 bytes (sum of Float)'"));
  EXPECT_THAT(error, testing::HasSubstr("'reduction of gradients of "));
}

TEST(GradientBuckets, ASingleOneLeavesNothingToOverlap) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    optim::FlatParameters flat({{"only", torch::rand({10}).requires_grad_()}});
    const GradientBuckets buckets(flat, comm, {.leaves = 2});
    EXPECT_FALSE(buckets.worth_it());
  });
}

}  // namespace
}  // namespace lockstep
