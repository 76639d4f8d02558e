#include "lockstep/comm/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "lockstep/comm/meeting.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/shared.h"
#include "tests/launch/rank_process.h"
#include "tests/support/ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ProcessGroup, GlooIsThereAndFindsItsRanksAtTheMeetingPlace) {
  EXPECT_THAT(available_backends(), Contains("gloo"));
  run_ranks(2, [](launch::Team& team) {
    Shared shared(team);
    const Met met = meet_through(shared, launch::kLimit);
    const auto store =
        c10::make_intrusive<RendezvousStore>(met.rendezvous, "test/", launch::kLimit);
    const auto group = make_process_group(store, {.backend = "gloo",
                                                  .address = "127.0.0.1",
                                                  .rank = team.rank(),
                                                  .size = 2,
                                                  .timeout = launch::kLimit});
    std::vector<torch::Tensor> tensors{torch::full({3}, team.rank() + 1.0F)};
    group->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors[0].equal(torch::full({3}, 3.0F)));
    shared.barrier();
  });
}

TEST(ProcessGroup, ABackendThatIsNotThereIsRefusedWithThoseThatAre) {
  EXPECT_THAT(launch::message_of<ConfigError>([] {
                make_process_group(c10::make_intrusive<c10d::HashStore>(), {.backend = "glue"});
              }),
              AllOf(HasSubstr("shm"), HasSubstr("gloo"), HasSubstr("got 'glue'")));
}

}  // namespace
}  // namespace lockstep::comm
