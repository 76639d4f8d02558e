#include "lockstep/launcher/rank_environment.h"

#include <gtest/gtest.h>

namespace lockstep::launcher {
namespace {

const RankPlace kPlace{.topology = {.rank = 3, .world_size = 4, .local_rank = 1, .local_size = 2},
                       .node_rank = 1,
                       .nodes = 2,
                       .master = {.address = "10.0.0.1", .port = 4711},
                       .run_id = "run",
                       .token = "the ranks' own",
                       .restarts = 1,
                       .max_restarts = 2,
                       .threads = 5};

TEST(RankEnvironment, IsWhatOurOwnProgramsUnderstand) {
  const auto place = process::find_place(rank_environment({}, kPlace));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, process::Launcher::kTorchrun);
  EXPECT_EQ(place->topology.rank, 3);
  EXPECT_EQ(place->topology.world_size, 4);
  EXPECT_EQ(place->topology.local_rank, 1);
  EXPECT_EQ(place->topology.local_size, 2);
  EXPECT_TRUE(place->local_size_known);
  EXPECT_EQ(place->master_address, "10.0.0.1");
  EXPECT_EQ(place->master_port, 4711);
  EXPECT_FALSE(place->agent_store);
}

TEST(RankEnvironment, RanksGetTheirOwnSecretAndNotTheLaunchers) {
  const process::Environment environment = rank_environment(
      {{"LOCKSTEP_TOKEN", "the launchers'"}, {"LOCKSTEP_TOKEN_FILE", "/h/.token"}}, kPlace);
  EXPECT_EQ(environment.at("LOCKSTEP_TOKEN"), "the ranks' own");
  EXPECT_FALSE(environment.contains("LOCKSTEP_TOKEN_FILE"));
}

TEST(RankEnvironment, ThreadsAreTheUsersIfHeSaid) {
  EXPECT_EQ(rank_environment({}, kPlace).at("OMP_NUM_THREADS"), "5");
  EXPECT_EQ(rank_environment({{"OMP_NUM_THREADS", "9"}}, kPlace).at("OMP_NUM_THREADS"), "9");
  EXPECT_EQ(rank_environment({{"RANK", "0"}, {"HOME", "/h"}}, kPlace).at("RANK"), "3");
  EXPECT_EQ(rank_environment({{"HOME", "/h"}}, kPlace).at("HOME"), "/h");
  EXPECT_EQ(rank_environment({}, kPlace).at("PYTHONUNBUFFERED"), "1");
}

TEST(RankEnvironment, PyTorchsStoreNeedsNoLibuvUnlessTheUserWantsIt) {
  EXPECT_EQ(rank_environment({}, kPlace).at("USE_LIBUV"), "0");
  EXPECT_EQ(rank_environment({{"USE_LIBUV", "1"}}, kPlace).at("USE_LIBUV"), "1");
}

TEST(RankEnvironment, TheLaunchersMemoryIsHandedOnAndNotAnotherLaunchers) {
  RankPlace place = kPlace;
  EXPECT_FALSE(rank_environment({{"LOCKSTEP_MEMORY", "9"}}, place).contains("LOCKSTEP_MEMORY"));
  place.memory = 7;
  EXPECT_EQ(rank_environment({{"LOCKSTEP_MEMORY", "9"}}, place).at("LOCKSTEP_MEMORY"), "7");
}

TEST(RankEnvironment, RanksKnowWhetherNodesMayLeave) {
  RankPlace place = kPlace;
  EXPECT_FALSE(rank_environment({{"LOCKSTEP_ELASTIC", "1"}}, place).contains("LOCKSTEP_ELASTIC"));
  place.is_elastic = true;
  EXPECT_EQ(rank_environment({}, place).at("LOCKSTEP_ELASTIC"), "1");
}

TEST(RankEnvironment, ShardsAndThreadsAreTheUsersIfHeSaid) {
  RankPlace place = kPlace;
  EXPECT_FALSE(rank_environment({}, place).contains("LOCKSTEP_SHARDS"));
  place.shards = 6;
  place.shard_threads = 2;
  EXPECT_EQ(rank_environment({}, place).at("LOCKSTEP_SHARDS"), "6");
  EXPECT_EQ(rank_environment({}, place).at("LOCKSTEP_THREADS"), "2");
  EXPECT_EQ(rank_environment({{"LOCKSTEP_SHARDS", "12"}}, place).at("LOCKSTEP_SHARDS"), "12");
}

TEST(RankEnvironment, TheRoleIsHandedOn) {
  EXPECT_EQ(rank_environment({}, kPlace).at("ROLE_NAME"), "default");
  RankPlace place = kPlace;
  place.role = "trainer";
  EXPECT_EQ(rank_environment({}, place).at("ROLE_NAME"), "trainer");
}

}  // namespace
}  // namespace lockstep::launcher
