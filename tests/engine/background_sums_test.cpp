#include "lockstep/engine/background_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

TEST(BackgroundSums, SumsInTheOrderInWhichTheyWereAdded) {
  run_ranks({.size = 2}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    BackgroundSums sums(comm);
    for (int round = 0; round < 50; ++round) {
      std::vector<torch::Tensor> arrays;
      for (int i = 0; i < 3; ++i) arrays.push_back(torch::full({10 + i}, i + 1.0));
      for (const auto& array : arrays) sums.add({.leaves = 2, .tensors = {array}});
      // Another collective waits for the sums before it.
      const auto other = torch::full({1}, 5.0);
      comm.all_reduce(other);
      EXPECT_EQ(other.item<double>(), 10.0);
      EXPECT_EQ(arrays[2][0].item<double>(), 6.0);
      sums.finish();
      EXPECT_EQ(arrays[0][0].item<double>(), 2.0);
    }
    sums.finish();  // there is nothing to wait for
  });
}

TEST(BackgroundSums, ThrowsWhatASumThrew) {
  run_ranks({.size = 2}, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    BackgroundSums sums(comm);
    const auto untouched = torch::ones({4});
    // The first sum has too many tensors. It fails on both ranks before anything is sent, and the
    // second one is not computed.
    sums.add({.leaves = 2, .tensors = {torch::ones({4}), torch::ones({4})}});
    sums.add({.leaves = 2, .tensors = {untouched}});
    EXPECT_THROW(sums.finish(), CommError);
    EXPECT_TRUE(untouched.equal(torch::ones({4})));
    // The error is not thrown again.
    sums.add({.leaves = 2, .tensors = {untouched}});
    sums.finish();
    EXPECT_TRUE(untouched.equal(torch::full({4}, 2.0)));
  });
}

}  // namespace
}  // namespace lockstep
