#include "lockstep/engine/gradient_buckets.h"

#include <gtest/gtest.h>

#include "lockstep/comm/shared.h"
#include "lockstep/compute/autograd_probe.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

// Counts the reductions that begin before backward() is over.
TEST(GradientBuckets, GoOffWhileBackwardStillComputes) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](launch::Team& team) {
    comm::Shared comm(team);
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
    // Not armed, backward() is nobody's business.
    flat.zero_grad();
    loss().backward();
    EXPECT_EQ(parameters[3].second.grad()[0].item<double>(), 3.0);
  });
}

TEST(GradientBuckets, ASingleOneLeavesNothingToOverlap) {
  run_ranks({.size = 2, .probe = compute::autograd_works}, [](launch::Team& team) {
    comm::Shared comm(team);
    optim::FlatParameters flat({{"only", torch::rand({10}).requires_grad_()}});
    const GradientBuckets buckets(flat, comm, {.leaves = 2});
    EXPECT_FALSE(buckets.worth_it());
  });
}

}  // namespace
}  // namespace lockstep
