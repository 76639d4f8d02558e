#include "lockstep/process/environment.h"

#include <array>
#include <cstdlib>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::process {
namespace {

using ::testing::HasSubstr;

// `environment` with the variables of `changes` added or, if their value is empty, removed.
Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      environment.erase(name);
    } else {
      environment[name] = value;
    }
  }
  return environment;
}

// What torchrun sets for the last process of `torchrun --nproc_per_node=2`.
const Environment kTorchrun = {
    {"RANK", "1"},
    {"LOCAL_RANK", "1"},
    {"GROUP_RANK", "0"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"WORLD_SIZE", "2"},
    {"MASTER_ADDR", "127.0.0.1"},
    {"MASTER_PORT", "29500"},
    {"TORCHELASTIC_RESTART_COUNT", "0"},
    {"TORCHELASTIC_MAX_RESTARTS", "0"},
    {"TORCHELASTIC_RUN_ID", "none"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
};

const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"PMIX_NAMESPACE", "prterun-a-7@1"},
};

// What the mpirun of MPICH and Intel MPI sets for the last of four ranks on two hosts.
const Environment kHydra = {
    {"PMI_RANK", "3"},
    {"PMI_SIZE", "4"},
    {"MPI_LOCALRANKID", "1"},
    {"MPI_LOCALNRANKS", "2"},
};

// What `srun -n 7` on four nodes sets for the only task of the last node.
const Environment kSlurm = {
    {"SLURM_JOB_ID", "815"},
    {"SLURM_STEP_ID", "2"},
    {"SLURM_PROCID", "6"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "3"},
    {"SLURM_NTASKS", "7"},
    {"SLURM_STEP_NUM_TASKS", "7"},
    {"SLURM_TASKS_PER_NODE", "2(x3),1"},
    {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
};

// What a script of `sbatch -n 7` sees.
const Environment kBatch = with(kSlurm, {{"SLURM_PROCID", "0"},
                                         {"SLURM_NODEID", "0"},
                                         {"SLURM_STEP_ID", ""},
                                         {"SLURM_STEP_NUM_TASKS", ""},
                                         {"SLURM_STEP_TASKS_PER_NODE", ""}});

struct Good {
  std::string name;
  Environment environment;
  Launcher launcher = Launcher::kTorchrun;
  Topology topology = {};
  bool local_size_known = true;
  std::string run_id = {};
};

TEST(LaunchEnvironment, PlacesAreFound) {
  const Environment by_hand = {{"RANK", "2"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "a"},
                               {"MASTER_PORT", "1"}};
  const std::vector<Good> table = {
      {"torchrun", kTorchrun, Launcher::kTorchrun, {1, 2, 1, 2}, true, "none.0"},
      {"torchrun's second try",
       with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
       Launcher::kTorchrun,
       {1, 2, 1, 2},
       true,
       "x.2"},
      {"by hand", by_hand, Launcher::kTorchrun, {2, 4, 1, 2}, false},
      {"alone, by hand",
       with(by_hand, {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", ""}}),
       Launcher::kTorchrun,
       {0, 1, 0, 1}},
      {"mpirun", kOpenMpi, Launcher::kOpenMpi, {3, 4, 1, 2}, true, "prterun-a-7@1"},
      {"an older mpirun",
       with(kOpenMpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", "123"}}),
       Launcher::kOpenMpi,
       {3, 4, 1, 2},
       true,
       "123"},
      {"mpirun without a local size",
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}, {"PMIX_NAMESPACE", ""}}),
       Launcher::kOpenMpi,
       {3, 4, 1, 2},
       false},
      {"mpirun -n 1",
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
       Launcher::kOpenMpi,
       {0, 1, 0, 1}},
      {"MPICH's mpirun", kHydra, Launcher::kHydra, {3, 4, 1, 2}},
      {"MPICH's mpirun -n 1",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
       Launcher::kHydra,
       {0, 1, 0, 1}},
      {"MPICH's mpirun under srun", with(kSlurm, kHydra), Launcher::kHydra, {3, 4, 1, 2}},
      {"srun --mpi=pmi2",
       with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}, {"PMI_FD", "9"}}),
       Launcher::kSlurm,
       {6, 7, 0, 1},
       true,
       "815.2"},
      {"Open MPI's mpirun with PMI",
       with(kOpenMpi, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}),
       Launcher::kOpenMpi,
       {3, 4, 1, 2},
       true,
       "prterun-a-7@1"},
      {"torchrun's like MPICH's",
       with(kTorchrun, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}}),
       Launcher::kTorchrun,
       {1, 2, 1, 2},
       true,
       "none.0"},
      {"srun", kSlurm, Launcher::kSlurm, {6, 7, 0, 1}, true, "815.2"},
      {"srun, second node",
       with(kSlurm, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}}),
       Launcher::kSlurm,
       {3, 7, 1, 2},
       true,
       "815.2"},
      {"srun of fewer tasks than the job's",
       with(kSlurm, {{"SLURM_PROCID", "0"},
                     {"SLURM_NODEID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "3"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2,1"}}),
       Launcher::kSlurm,
       {0, 3, 0, 2},
       true,
       "815.2"},
      {"srun without the step's own variables",
       with(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_STEP_TASKS_PER_NODE", ""}}),
       Launcher::kSlurm,
       {6, 7, 0, 1},
       true,
       "815.2"},
      {"srun with a list of other tasks",
       with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "9(x9)"}, {"SLURM_TASKS_PER_NODE", "2(x,"}}),
       Launcher::kSlurm,
       {6, 7, 0, 1},
       false,
       "815.2"},
      {"srun -n 1",
       with(kSlurm, {{"SLURM_PROCID", "0"},
                     {"SLURM_NODEID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "1"},
                     {"SLURM_STEP_TASKS_PER_NODE", "1"}}),
       Launcher::kSlurm,
       {0, 1, 0, 1},
       true,
       "815.2"},
      {"srun from a shell of srun --pty",
       with(kSlurm, {{"SLURM_PTY_PORT", "34889"}}),
       Launcher::kSlurm,
       {6, 7, 0, 1},
       true,
       "815.2"},
      {"srun with WORLD_SIZE",
       with(kSlurm, {{"WORLD_SIZE", "7"}}),
       Launcher::kSlurm,
       {6, 7, 0, 1},
       true,
       "815.2"},
      // Each node's torchrun is a task of srun, and so is each node's daemon of mpirun.
      {"torchrun under srun",
       with(kSlurm, kTorchrun),
       Launcher::kTorchrun,
       {1, 2, 1, 2},
       true,
       "none.0"},
      {"mpirun under srun",
       with(kSlurm, kOpenMpi),
       Launcher::kOpenMpi,
       {3, 4, 1, 2},
       true,
       "prterun-a-7@1"},
      {"torchrun's like mpirun's",
       with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       Launcher::kTorchrun,
       {1, 2, 1, 2},
       true,
       "none.0"},
  };
  for (const Good& good : table) {
    SCOPED_TRACE(good.name);
    std::optional<LaunchedPlace> place;
    ASSERT_NO_THROW(place = find_place(good.environment));
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->launcher, good.launcher);
    EXPECT_EQ(place->topology.rank, good.topology.rank);
    EXPECT_EQ(place->topology.world_size, good.topology.world_size);
    EXPECT_EQ(place->topology.local_rank, good.topology.local_rank);
    EXPECT_EQ(place->topology.local_size, good.topology.local_size);
    EXPECT_EQ(place->local_size_known, good.local_size_known);
    EXPECT_EQ(place->run_id, good.run_id);
  }
}

TEST(LaunchEnvironment, TheMeetingPlaceIsTheMaster) {
  const LaunchedPlace torchrun = find_place(kTorchrun).value();
  EXPECT_EQ(torchrun.master_address, "127.0.0.1");
  EXPECT_EQ(torchrun.master_port, 29500);
  EXPECT_TRUE(torchrun.agent_store);
  for (const std::string value : {"False", ""}) {
    const auto changed = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", value}});
    EXPECT_FALSE(find_place(changed).value().agent_store) << value;
  }

  for (const Environment& environment : {kOpenMpi, kHydra, kSlurm}) {
    const LaunchedPlace without = find_place(environment).value();
    EXPECT_EQ(without.master_address, std::nullopt);
    EXPECT_EQ(without.master_port, std::nullopt);
    EXPECT_FALSE(without.agent_store);
    const LaunchedPlace where =
        find_place(with(environment, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}})).value();
    EXPECT_EQ(where.master_address, "a");
    EXPECT_EQ(where.master_port, 65535);
  }
}

// Each host has its own daemon of MPICH, so the daemon identifies a run only if there is one host.
TEST(LaunchEnvironment, ADaemonOfMpichNamesARunOfOneHost) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const FileDescriptor daemon(ends[0]), rank(ends[1]);
  const auto run_id = [&](const std::string& local_size) {
    return find_place(with(kHydra, {{"PMI_FD", std::to_string(rank.get())},
                                    {"MPI_LOCALRANKID", "3"},
                                    {"MPI_LOCALNRANKS", local_size}}))
        .value()
        .run_id;
  };
  EXPECT_THAT(run_id("4"), ::testing::StartsWith("pmi-"));
  const LaunchedPlace several =
      find_place(with(kHydra, {{"PMI_FD", std::to_string(rank.get())}})).value();
  EXPECT_LT(several.topology.local_size, several.topology.world_size);
  EXPECT_EQ(several.run_id, "");
}

TEST(LaunchEnvironment, WithoutALauncherThereIsNoPlace) {
  const std::vector<std::pair<std::string, Environment>> table = {
      {"a plain shell", {{"PATH", "/bin"}}},
      {"empty variables", {{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", ""}}},
      {"a script of sbatch", kBatch},
      {"a script of sbatch as a step", with(kBatch, {{"SLURM_STEP_ID", "4294967291"}})},
      {"a script of sbatch as a signed step", with(kBatch, {{"SLURM_STEP_ID", "-5"}})},
      {"a shell of salloc", with(kBatch, {{"SLURM_PROCID", ""}, {"SLURM_LOCALID", ""}})},
      {"a shell of salloc as a step", with(kBatch, {{"SLURM_STEP_ID", "4294967290"},
                                                    {"SLURM_STEP_NUM_TASKS", "1"},
                                                    {"SLURM_PTY_PORT", "34889"}})},
      {"a shell of srun --pty",
       with(kBatch,
            {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PTY_PORT", "34889"}})},
  };
  for (const auto& [name, environment] : table) {
    EXPECT_FALSE(find_place(environment).has_value()) << name;
  }
}

struct Bad {
  Environment environment;
  std::vector<std::string> said;  // parts that the message must contain
};

TEST(LaunchEnvironment, WhatIsWrongIsNamed) {
  const std::vector<Bad> table = {
      // Some variables are missing.
      {{{"WORLD_SIZE", "2"}},
       {"set: WORLD_SIZE=2;", "missing: RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT:", "unset"}},
      {{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
       {"set: MASTER_ADDR=a, MASTER_PORT=1;", "missing: RANK, WORLD_SIZE, LOCAL_RANK:"}},
      {{{"WORLD_SIZE", "1"}, {"MASTER_PORT", "1"}},
       {"set: WORLD_SIZE=1, MASTER_PORT=1;", "missing: RANK, MASTER_ADDR:"}},
      {{{"RANK", "0"}}, {"set: RANK=0;", "missing: WORLD_SIZE, LOCAL_RANK, MASTER_ADDR"}},
      {{{"LOCAL_RANK", "0"}}, {"set: LOCAL_RANK=0;", "missing: RANK, WORLD_SIZE, MASTER_ADDR"}},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), {"RANK=1, WORLD_SIZE=2,", "missing: LOCAL_RANK:"}},
      {with(kTorchrun, {{"MASTER_PORT", ""}}), {"MASTER_ADDR=127.0.0.1;", "missing: MASTER_PORT:"}},
      {with(kSlurm, {{"LOCAL_RANK", "0"}}), {"set: LOCAL_RANK=0;", "missing: RANK,"}},
      {with(kBatch, {{"MASTER_ADDR", "a"}}), {"set: MASTER_ADDR=a;", "missing: RANK,"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}},
       {"OMPI_COMM_WORLD_RANK=0;", "missing: OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK:"}},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", ""}}), {"missing: OMPI_COMM_WORLD_RANK:"}},
      {{{"PMI_RANK", "0"}}, {"set: PMI_RANK=0;", "missing: PMI_SIZE, MPI_LOCALRANKID:"}},
      {with(kHydra, {{"MPI_LOCALRANKID", ""}}), {"missing: MPI_LOCALRANKID:"}},
      {with(kSlurm, {{"SLURM_NTASKS", ""}, {"SLURM_STEP_NUM_TASKS", ""}}),
       {"SLURM_PROCID=6", "missing: SLURM_NTASKS:"}},
      {with(kSlurm, {{"SLURM_LOCALID", ""}}), {"missing: SLURM_LOCALID:"}},
      // Values that are not numbers, or numbers out of range.
      {with(kTorchrun, {{"RANK", "one"}}), {"RANK: expected an integer from 0 to 1", "got 'one'"}},
      {with(kTorchrun, {{"RANK", "1 "}}), {"RANK: ", "got '1 '"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK: ", "got '-1'"}},
      {with(kTorchrun, {{"RANK", "2"}}),
       {"RANK: expected an integer from 0 to 1 because WORLD_SIZE=2, got '2'"}},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}),
       {"WORLD_SIZE: expected an integer from 1 up, got '0'"}},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE: ", "got '99999999999'"}},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}),
       {"MASTER_PORT: expected an integer from 1 to 65535, got '0'"}},
      {with(kSlurm, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT: ", "got '65536'"}},
      {with(kOpenMpi, {{"MASTER_PORT", "http"}}), {"MASTER_PORT: ", "got 'http'"}},
      // Contradictions.
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}}),
       {"LOCAL_RANK: expected an integer from 0 to 0 because LOCAL_WORLD_SIZE=1, got '1'"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}),
       {"LOCAL_WORLD_SIZE: expected an integer from 1 to 2 because WORLD_SIZE=2, got '3'"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}, {"LOCAL_RANK", "2"}}),
       {"LOCAL_RANK: ", "because WORLD_SIZE=2, got '2'"}},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}),
       {"OMPI_COMM_WORLD_RANK: ", "because OMPI_COMM_WORLD_SIZE=4, got '4'"}},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
       {"OMPI_COMM_WORLD_LOCAL_SIZE: ", "because OMPI_COMM_WORLD_SIZE=4, got '5'"}},
      {with(kSlurm, {{"SLURM_PROCID", "7"}}),
       {"SLURM_PROCID: ", "because SLURM_STEP_NUM_TASKS=7, got '7'"}},
      {with(kSlurm, {{"SLURM_LOCALID", "1"}}),
       {"SLURM_LOCALID: ",
        "because SLURM_STEP_TASKS_PER_NODE=2(x3),1 and SLURM_NODEID=3, got '1'"}},
      {with(kHydra, {{"PMI_RANK", "4"}}), {"PMI_RANK: ", "because PMI_SIZE=4, got '4'"}},
      {with(kTorchrun, kHydra), {"RANK=1 contradicts PMI_RANK=3"}},
      {with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}}),
       {"PMI_RANK=5 contradicts SLURM_PROCID=6"}},
      {with(kSlurm, {{"WORLD_SIZE", "8"}}), {"WORLD_SIZE=8 contradicts SLURM_STEP_NUM_TASKS=7"}},
      {with(kOpenMpi, {{"WORLD_SIZE", "8"}}), {"WORLD_SIZE=8 contradicts OMPI_COMM_WORLD_SIZE=4"}},
      {with(kTorchrun, kOpenMpi), {"RANK=1 contradicts OMPI_COMM_WORLD_RANK=3"}},
      {with(with(kTorchrun, kOpenMpi), {{"OMPI_COMM_WORLD_RANK", "1"}}),
       {"WORLD_SIZE=2 contradicts OMPI_COMM_WORLD_SIZE=4"}},
  };
  for (const Bad& bad : table) {
    SCOPED_TRACE(bad.said.front());
    try {
      find_place(bad.environment);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ConfigError& error) {
      for (const std::string& part : bad.said) EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

TEST(LaunchEnvironment, TheProcesssOwnVariablesAreRead) {
  ASSERT_EQ(::setenv("LOCKSTEP_ENVIRONMENT_TEST", "a=b", 1), 0);
  EXPECT_EQ(current_environment().at("LOCKSTEP_ENVIRONMENT_TEST"), "a=b");
  ASSERT_EQ(::unsetenv("LOCKSTEP_ENVIRONMENT_TEST"), 0);
  EXPECT_FALSE(current_environment().contains("LOCKSTEP_ENVIRONMENT_TEST"));
}

TEST(PrimaryProcess, IsCalledByItsFirstNameToo) {
  EXPECT_EQ(launch::is_primary_process(), is_primary_process());
}

TEST(PositiveVariable, IsANumberOrAnError) {
  EXPECT_EQ(positive_variable({{"LOCKSTEP_SHARDS", "4"}}, kShardsVariable), 4);
  EXPECT_FALSE(positive_variable({}, kShardsVariable));
  EXPECT_FALSE(positive_variable({{"LOCKSTEP_SHARDS", ""}}, kShardsVariable));
  EXPECT_THROW(positive_variable({{"LOCKSTEP_SHARDS", "0"}}, kShardsVariable), ConfigError);
  EXPECT_THROW(positive_variable({{"LOCKSTEP_THREADS", "two"}}, kThreadsVariable), ConfigError);
}

}  // namespace
}  // namespace lockstep::process
