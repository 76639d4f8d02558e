// What needs a terminal's point of view is in tests/command/launch.sh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using testing::run_command;

TEST(Launch, GivesEachRankItsPlaceAndPrefixesItsLines) {
  const auto ran = run_command({"launch", "--nproc-per-node", "2", "sh", "-c",
                                "echo $RANK of $WORLD_SIZE, local $LOCAL_RANK at $MASTER_ADDR"});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("[rank 0] 0 of 2, local 0 at 127.0.0.1\n"));
  EXPECT_THAT(ran.output, HasSubstr("[rank 1] 1 of 2, local 1 at 127.0.0.1\n"));
  EXPECT_THAT(ran.errors, HasSubstr("all 2 ranks ended well"));
}

TEST(Launch, ReportsWhoFailedFirstAndHow) {
  const auto ran =
      run_command({"launch", "--nproc-per-node", "2", "sh", "-c",
                   "if [ $RANK = 1 ]; then echo the reason >&2; exit 7; fi; sleep 60"});
  EXPECT_EQ(ran.code, 7);
  EXPECT_THAT(ran.errors, HasSubstr("rank 1 failed first: exit code 7"));
  EXPECT_THAT(ran.errors, HasSubstr("  | the reason"));
  EXPECT_THAT(ran.errors, HasSubstr("rank 0: killed by signal 15 (Terminated), told to stop"));
}

TEST(Launch, RestartsAsOftenAsItMay) {
  const TemporaryDirectory folder;
  const std::string script =
      "echo try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 2 ]";
  const auto ran = run_command({"launch", "--nproc-per-node", "2", "--max-restarts", "2",
                                "--log-dir", folder.path().string(), "sh", "-c", script});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(read_file(folder / "rank1/stdout.log"), HasSubstr("try 2\n"));
  EXPECT_EQ(
      run_command({"launch", "--nproc-per-node", "1", "--max-restarts", "1", "sh", "-c", "exit 4"})
          .code,
      4);
}

TEST(Launch, TheProgramMayBeSetApart) {
  EXPECT_EQ(run_command({"launch", "--nproc-per-node", "1", "--", "echo", "-x", "--", "y"}).output,
            "-x -- y\n");
  EXPECT_EQ(run_command({"launch", "--nproc-per-node", "1", "echo", "a", "--", "b"}).output,
            "a -- b\n");
}

TEST(Launch, TorchrunsHabits) {
  EXPECT_EQ(run_command({"launch", "--standalone", "--nnodes", "1", "--rdzv-backend", "c10d",
                         "--rdzv-endpoint", "localhost:0", "--nproc_per_node", "1", "--no_python",
                         "true"})
                .code,
            kDone);
  EXPECT_THAT(run_command({"launch", "--nproc-per-node", "1", "-m", "platform"}).output,
              HasSubstr("Linux"));
}

TEST(Launch, MistakesAreTold) {
  EXPECT_EQ(run_command({"launch"}).code, kBadUsage);
  EXPECT_THAT(run_command({"launch", "--nproc", "2", "true"}).errors,
              HasSubstr("did you mean '--nproc-per-node'"));
  EXPECT_THAT(run_command({"launch", "--nproc-per-node", "x", "true"}).errors,
              HasSubstr("expected a positive integer, cpu, gpu or auto, got 'x'"));
  EXPECT_THAT(run_command({"launch", "--nnodes", "2", "true"}).errors,
              HasSubstr("expected --rdzv-endpoint"));
  EXPECT_THAT(run_command({"launch", "--nnodes", "2", "--rdzv-endpoint", "host:x", "true"}).errors,
              HasSubstr("expected host:port"));
  EXPECT_THAT(run_command({"launch", "--nnodes", "2", "--rdzv-endpoint", "host:1", "true"}).errors,
              HasSubstr("expected --rdzv-id"));
  EXPECT_EQ(run_command({"launch", "--grace", "nan", "true"}).code, kBadUsage);
  EXPECT_EQ(run_command({"launch", "--master-port", "99999", "true"}).code, kBadUsage);
  const auto missing = run_command({"launch", "--nproc-per-node", "1", "./nowhere"});
  EXPECT_EQ(missing.code, kWorkerFailed);
  EXPECT_THAT(missing.errors, HasSubstr("./nowhere: cannot be started"));
}

}  // namespace
}  // namespace lockstep::command
