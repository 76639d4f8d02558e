#include "lockstep/comm/communicator.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/shared.h"
#include "tests/comm/collectives.h"
#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What the base class does is tested with each kind of communicator (collectives.h). The tests here
// are about what it refuses.

std::string refused(const std::function<void(Communicator&)>& action) {
  return error_of_ranks({.size = 2}, [&](process::HostGroup& host_group) {
    Shared comm(host_group);
    action(comm);
  });
}

TEST(Communicator, RefusesWhatIsNotDense) {
  EXPECT_THAT(refused([](Communicator& comm) { comm.broadcast(torch::Tensor()); }),
              HasSubstr("expected a dense tensor, got an undefined one"));
  EXPECT_THAT(refused([](Communicator& comm) {
                comm.all_reduce(torch::ones({2, 2}).to_sparse());
              }),
              HasSubstr("a sparse one"));
}

TEST(Communicator, RefusesARootThatIsNoRank) {
  EXPECT_THAT(refused([](Communicator& comm) { comm.gather_bytes("", 2); }),
              HasSubstr("root: expected a rank from 0 to 1, got 2"));
}

TEST(Communicator, RefusesTheMeanOfIntegers) {
  EXPECT_THAT(refused([](Communicator& comm) {
                comm.all_reduce(torch::ones({2}, torch::kInt32), ReduceOp::kMean);
              }),
              HasSubstr("the mean of Int: expected floating point"));
}

TEST(Communicator, RefusesPartsThatDoNotFit) {
  EXPECT_THAT(refused([](Communicator& comm) {
                comm.sum_parts({.leaves = 4, .tensors = {torch::ones(3)}}, torch::ones(3));
              }),
              HasSubstr("expected 2 tensors on rank"));
  EXPECT_THAT(refused([](Communicator& comm) {
                comm.sum_parts({.leaves = 2, .tensors = {torch::ones(3)}}, torch::ones(4));
              }),
              HasSubstr("expected 4 numbers of Float in every tensor, got 3 of Float"));
}

TEST(Communicator, RefusesCollectivesThatDifferInMoreThanTheirSize) {
  const auto differ = [](auto of_first, auto of_second) {
    return refused(
        [=](Communicator& comm) { comm.rank() == 0 ? of_first(comm) : of_second(comm); });
  };
  const torch::Tensor floats = torch::ones({4});
  const torch::Tensor integers = torch::ones({4}, torch::kInt32);
  EXPECT_THAT(differ([=](Communicator& comm) { comm.all_reduce(floats); },
                     [=](Communicator& comm) { comm.all_reduce(integers); }),
              AllOf(HasSubstr("'all_reduce of 16 bytes (sum of Float)'"),
                    HasSubstr("'all_reduce of 16 bytes (sum of Int)'")));
  EXPECT_THAT(differ([=](Communicator& comm) { comm.all_reduce(floats); },
                     [=](Communicator& comm) { comm.all_reduce(floats, ReduceOp::kMax); }),
              AllOf(HasSubstr("sum of Float"), HasSubstr("maximum of Float")));
  EXPECT_THAT(differ([=](Communicator& comm) { comm.broadcast(floats, 0); },
                     [=](Communicator& comm) { comm.broadcast(floats, 1); }),
              AllOf(HasSubstr("Float from rank 0"), HasSubstr("Float from rank 1")));
  EXPECT_THAT(differ([=](Communicator& comm) { comm.gather(floats, 0); },
                     [=](Communicator& comm) { comm.all_gather(floats); }),
              AllOf(HasSubstr("to rank 0"), HasSubstr("to all ranks")));
  EXPECT_THAT(
      differ(
          [=](Communicator& comm) { comm.all_reduce(floats); },
          [=](Communicator& comm) { comm.sum_parts({.leaves = 2, .tensors = {floats}}, floats); }),
      AllOf(HasSubstr("'all_reduce of 16 bytes"), HasSubstr("'reduction of gradients of 16")));
}

// The sums that the background thread has begun come first, then the collective of another thread.
TEST(Communicator, ACollectiveWaitsForTheBackground) {
  run_ranks(2, [](process::HostGroup& host_group) {
    Shared comm(host_group);
    const torch::Tensor part = torch::full({3}, host_group.rank() + 1.0F);
    std::thread background;
    int waited = 0;
    comm.set_background([&] {
      ++waited;
      if (background.joinable()) background.join();
    });
    background = std::thread([&] { comm.sum_parts({.leaves = 2, .tensors = {part}}, part); });
    const torch::Tensor other = torch::ones({3});
    comm.all_reduce(other);
    EXPECT_EQ(waited, 1);
    EXPECT_EQ(part[0].item<float>(), 3.0F);
    EXPECT_EQ(other[0].item<float>(), 2.0F);
    comm.set_background({});
    comm.barrier();
    EXPECT_EQ(waited, 1);
  });
}

TEST(Communicator, KnowsItsPlace) {
  run_ranks(2, [](process::HostGroup& host_group) {
    const Shared comm(host_group);
    EXPECT_EQ(comm.topology().local_rank, host_group.rank());
    EXPECT_EQ(comm.topology().local_size, 2);
    EXPECT_EQ(comm.is_primary(), host_group.rank() == 0);
  });
}

}  // namespace
}  // namespace lockstep::comm
