#include "lockstep/engine/background_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/shared.h"
#include "tests/comm/fake_plane.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

// Tensors on a device, which backward() has not computed yet when they are added. The device is a
// stand-in.
TEST(BackgroundSums, WaitForTheDeviceThatComputesTheTensors) {
  const std::map<int, comm::FakePlaneOptions> planes = {{1, {.late = 5ms}}};
  comm::run_fake_ranks({.size = 3, .planes = planes}, [](const comm::FakeRank& rank) {
    BackgroundSums sums(rank.comm);
    rank.comm.broadcast(torch::ones(1));  // starts the device's plane
    for (int round = 0; round < 5; ++round) {
      std::vector<torch::Tensor> buckets;
      for (int i = 0; i < 4; ++i) {
        const torch::Tensor bucket = torch::zeros({10'001 * (i + 1)});
        rank.planes.plane()->compute().give([bucket, i, own = rank.comm.rank()] {
          std::this_thread::sleep_for(5ms);
          torch::Tensor(bucket).fill_(own + i);
        });
        buckets.push_back(bucket);
        sums.add({.leaves = 3, .tensors = {bucket}});
        // What backward() computes next does not delay the bucket.
        rank.planes.plane()->compute().give([] { std::this_thread::sleep_for(5ms); });
      }
      // A collective of the control plane waits for the sums before it.
      rank.comm.vote(1);
      EXPECT_EQ(buckets[3][40'003].item<float>(), 12.0F);
      sums.finish();
      for (int i = 0; i < 4; ++i) {
        const torch::Tensor& bucket = buckets[static_cast<std::size_t>(i)];
        EXPECT_TRUE(bucket.eq(3.0F * static_cast<float>(i) + 3.0F).all().item<bool>());
      }
    }
  });
}

TEST(BackgroundSums, ThrowWhatTheDeviceOfARankReports) {
  const std::map<int, comm::FakePlaneOptions> planes = {{1, {.fails_at = 3}}};
  comm::run_fake_ranks({.size = 2, .planes = planes}, [](const comm::FakeRank& rank) {
    BackgroundSums sums(rank.comm);
    rank.comm.broadcast(torch::ones(1));
    for (int i = 0; i < 3; ++i) {
      sums.add({.leaves = 2, .tensors = {torch::ones(50'000)}});  // two operations each
    }
    std::string text;
    try {
      sums.finish();
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_THAT(text, AllOf(HasSubstr("reduction of gradients of 200000 bytes on GPUs"),
                            HasSubstr("the fake device broke")));
  });
}

}  // namespace
}  // namespace lockstep
