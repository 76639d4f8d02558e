// Tests that run the command as a program, from a shell, are in tests/command/launch.sh.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/process/memory_file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_command;

TEST(Launch, GivesEachRankItsPlaceAndPrefixesItsLines) {
  const auto ran = run_command({"launch", "--nproc-per-node", "2", "sh", "-c",
                                "echo $RANK of $WORLD_SIZE, local $LOCAL_RANK at $MASTER_ADDR"});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("[rank 0] 0 of 2, local 0 at 127.0.0.1\n"));
  EXPECT_THAT(ran.output, HasSubstr("[rank 1] 1 of 2, local 1 at 127.0.0.1\n"));
  EXPECT_THAT(ran.errors, HasSubstr("all 2 ranks ended well"));
}

TEST(Launch, ReportsTheRankThatFailedFirst) {
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

// Not a test of its own: the tests below start this program as their ranks. A failure is noted as
// LAUNCH_TEST_NOTE says: the kind, and the batch, which grows with each attempt if that is "+".
TEST(LaunchedRank, NotesAFailure) {
  const char* const wanted = std::getenv("LAUNCH_TEST_NOTE");
  if (wanted == nullptr) return;
  const auto memory = process::MemoryFile::inherited();
  const std::string text = wanted;
  const int kind = text[0] - '0';
  const int batch = text[1] == '+' ? memory->attempt() : text[1] - '0';
  if (memory->attempt() == 2) return;  // the third attempt ends well
  for (const auto& note : memory->failures()) std::cout << "before: " << note.reason << '\n';
  memory->note_failure({.attempt = memory->attempt(),
                        .rank = 0,
                        .kind = static_cast<process::FailureKind>(kind),
                        .epoch = 1,
                        .batch = batch,
                        .reason = fmt::format("attempt {} fails", memory->attempt())});
  std::exit(1);
}

TEST(Launch, DecidesByWhatTheRanksHaveNoted) {
  const auto launch = [](const char* note) {
    ::setenv("LAUNCH_TEST_NOTE", note, 1);
    const auto ran = run_command({"launch", "--nproc-per-node", "1", "--max-restarts", "5",
                                  "/proc/self/exe", "--gtest_filter=LaunchedRank.NotesAFailure"});
    ::unsetenv("LAUNCH_TEST_NOTE");
    return ran;
  };
  const auto moved = launch("0+");
  EXPECT_EQ(moved.code, kDone) << moved.errors;
  EXPECT_THAT(moved.errors,
              HasSubstr("restart 1 of 5: rank 0 (epoch 1, batch 0): attempt 0 fails"));
  EXPECT_THAT(moved.errors,
              HasSubstr("restart 2 of 5: rank 0 (epoch 1, batch 1): attempt 1 fails"));
  EXPECT_THAT(moved.output, HasSubstr("before: attempt 0 fails"));

  for (const char* same : {"03", "23"}) {
    const auto twice = launch(same);
    EXPECT_EQ(twice.code, 1);
    EXPECT_THAT(twice.errors, HasSubstr("at the same place twice"));
    EXPECT_THAT(twice.errors, HasSubstr("attempt 1: rank 0 (epoch 1, batch 3): attempt 0 fails"));
    EXPECT_THAT(twice.errors, HasSubstr("attempt 2: rank 0 (epoch 1, batch 3): attempt 1 fails"));
  }
  const auto config = launch("1+");
  EXPECT_EQ(config.code, 1);
  EXPECT_THAT(config.errors, HasSubstr("a wrong option would be wrong again"));
  EXPECT_THAT(config.errors, Not(HasSubstr("restart 1")));
  EXPECT_EQ(launch("33").code, kDone) << "a rank that was lost twice at one batch";
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
  EXPECT_EQ(run_command({"launch", "--nnodes", "1:1", "--nproc-per-node", "1", "--role", "trainer",
                         "sh", "-c", "echo $ROLE_NAME"})
                .output,
            "trainer\n");
}

TEST(Launch, StreamsAreWrittenShownOrBoth) {
  struct Case {
    std::vector<std::string> options;
    std::string output, errors;  // what is shown
    bool output_file, error_file;
  };
  const std::vector<Case> cases = {
      {{}, "", "", true, true},
      {{"--tee", "3"}, "out\n", "err\n", true, true},
      {{"-t", "1"}, "out\n", "", true, true},
      {{"--redirects", "2"}, "out\n", "", false, true},
      {{"-r", "1", "-t", "2"}, "", "err\n", true, true},
      {{"-r", "0"}, "out\n", "err\n", false, false},
  };
  for (const Case& expected : cases) {
    SCOPED_TRACE(::testing::PrintToString(expected.options));
    const TemporaryDirectory folder;
    std::vector<std::string> words = {"launch", "--nproc-per-node", "1", "--log-dir",
                                      folder.path().string()};
    words.insert(words.end(), expected.options.begin(), expected.options.end());
    words.insert(words.end(), {"sh", "-c", "echo out; echo err >&2"});
    const auto ran = run_command(words);
    EXPECT_EQ(ran.code, kDone) << ran.errors;
    EXPECT_EQ(ran.output, expected.output);
    EXPECT_THAT(ran.errors, ::testing::StartsWith(expected.errors + "lockstep launch: all"));
    EXPECT_EQ(std::filesystem::exists(folder / "rank0/stdout.log"), expected.output_file);
    EXPECT_EQ(std::filesystem::exists(folder / "rank0/stderr.log"), expected.error_file);
  }
}

TEST(Launch, WhatTorchrunHasAndThisHasNotIsTold) {
  const auto refusal = [](std::vector<std::string> words) {
    words.insert(words.begin(), "launch");
    words.push_back("true");
    const auto ran = run_command(words);
    EXPECT_EQ(ran.code, kBadUsage);
    return ran.errors;
  };
  EXPECT_THAT(refusal({"--monitor-interval", "5"}),
              HasSubstr("--monitor-interval: torchrun's option is not supported here"));
  EXPECT_THAT(refusal({"--rdzv_conf=timeout=9"}), HasSubstr("use --timeout SECONDS"));
  EXPECT_THAT(refusal({"--nnodes", "3:2"}),
              HasSubstr("expected MIN:MAX with MIN <= MAX, got '3:2'"));
  EXPECT_THAT(refusal({"--nnodes", "1:2"}), HasSubstr("expected --rdzv-endpoint host:port"));
  EXPECT_THAT(refusal({"--rdzv-endpoint", "127.0.0.1:1,127.0.0.1:2"}),
              HasSubstr("expected one endpoint for one node"));
  EXPECT_THAT(refusal({"--nnodes", "1:2", "--rdzv-endpoint", "127.0.0.1:1", "--timeout", "0"}),
              HasSubstr("--timeout: expected at least 1 second"));
  EXPECT_THAT(refusal({"--tee", "3"}), HasSubstr("--tee: expected --log-dir"));
  EXPECT_THAT(refusal({"--redirects", "3"}), HasSubstr("--redirects: expected --log-dir"));
  EXPECT_THAT(refusal({"--log-dir", "logs", "--tee", "0:1,1:1"}), HasSubstr("got '0:1,1:1'"));
  EXPECT_THAT(refusal({"--no-python", "-m"}), HasSubstr("leave out --module or --no-python"));
  EXPECT_THAT(refusal({"--rdzv-backend", "etcd"}), HasSubstr("etcd"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "a",
                       "--rdzv-endpoint", "127.0.0.1:1"}),
              HasSubstr("expected --node-rank, from 0 to 1"));
}

TEST(Launch, APythonScriptWithoutPythonIsTold) {
  const TemporaryDirectory folder;
  const std::string script = (folder / "ddp.py").string();
  write_file_atomically(script, "print(1)\n");
  const auto refused = run_command({"launch", "--nproc-per-node", "1", script});
  EXPECT_EQ(refused.code, kBadUsage);
  EXPECT_THAT(refused.errors, HasSubstr("lockstep launch [OPTIONS] python3 " + script));
  EXPECT_EQ(run_command({"launch", "--nproc-per-node", "1", "--no-python", script}).code, 126);
}

TEST(Launch, HelpHasOneUsage) {
  const auto help = run_command({"launch", "--help"}).output;
  const auto first = help.find("Usage:");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(help.find("Usage:", first + 1), std::string::npos) << help;
  EXPECT_THAT(help, HasSubstr("Usage: lockstep launch [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"));
}

// Some supervisors start programs with SIGCHLD ignored. The kernel would then reap the ranks, and
// their exit codes would be lost.
TEST(Launch, AFailureIsSeenWhereSigchldIsIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run_command({"launch", "--nproc-per-node", "2", "sh", "-c", "exit 7"}).code, 7);
  ::signal(SIGCHLD, before);
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
              HasSubstr("need a secret token"));
  EXPECT_EQ(run_command({"launch", "--grace", "nan", "true"}).code, kBadUsage);
  EXPECT_EQ(run_command({"launch", "--master-port", "99999", "true"}).code, kBadUsage);
  const auto missing = run_command({"launch", "--nproc-per-node", "1", "./nowhere"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_THAT(missing.errors, HasSubstr("./nowhere: cannot be started"));
  EXPECT_EQ(run_command({"launch", "--nproc-per-node", "1", "/etc/passwd"}).code, 126);
}

}  // namespace
}  // namespace lockstep::command
