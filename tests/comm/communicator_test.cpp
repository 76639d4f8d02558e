#include "lockstep/comm/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/shared.h"
#include "tests/comm/collectives.h"
#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

// What the base class does is checked with each kind of communicator (collectives.h); here is what
// it refuses.

std::string refused(const std::function<void(Communicator&)>& action) {
  return error_of_ranks({.size = 2}, [&](launch::Team& team) {
    Shared comm(team);
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

TEST(Communicator, RefusesToScatterWhatTheRanksDoNotDivide) {
  EXPECT_THAT(refused([](Communicator& comm) {
                comm.reduce_scatter(torch::ones({3, 4}));
              }),
              HasSubstr("that 2 ranks divide, got a tensor of shape [3, 4]"));
}

TEST(Communicator, KnowsItsPlace) {
  run_ranks(2, [](launch::Team& team) {
    const Shared comm(team);
    EXPECT_EQ(comm.topology().local_rank, team.rank());
    EXPECT_EQ(comm.topology().local_size, 2);
    EXPECT_EQ(comm.is_primary(), team.rank() == 0);
  });
}

}  // namespace
}  // namespace lockstep::comm
