#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "tests/command/support.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Ran;
using testing::run_command;

class Run : public ::testing::Test {
 protected:
  Run() { write_file_atomically(folder_ / "tiny.yml", testing::kTinyConfig); }

  Ran run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"run", "-C", (folder_ / "tiny.yml").string()});
    return run_command(words);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // "weights 0123…" from the printed output.
  static std::string weights(const Ran& ran) {
    const std::size_t at = ran.output.find("weights ");
    EXPECT_NE(at, std::string::npos) << ran.errors;
    return at == std::string::npos ? "" : ran.output.substr(at, 24);
  }

  TemporaryDirectory folder_;
};

TEST_F(Run, TrainsAndTheWrittenConfigGivesTheSameBits) {
  const Ran first = run({"--logdir", path("a"), "--seed", "5", "optimizer.lr=0.2"});
  ASSERT_EQ(first.code, kDone) << first.errors;
  const Ran again = run_command({"run", "-C", path("a/configs"), "--logdir", path("b")});
  EXPECT_EQ(weights(again), weights(first));
  EXPECT_THAT(read_file(path("a/configs/config.yml")), HasSubstr("seed: 5"));
  EXPECT_THAT(read_file(path("a/configs/environment.json")), HasSubstr("libtorch"));
  const auto documents =
      checkpoint::load(path("a/checkpoints/last.pth")).get<StateDict>("documents");
  EXPECT_EQ(documents.get<std::string>("config"), read_file(path("a/configs/config.yml")));
  EXPECT_NE(weights(run({"--seed", "6", "optimizer.lr=0.2"})), weights(first));
}

TEST_F(Run, DistributedFlagsAndTheirBits) {
  const Ran one = run({"--workers", "1", "--shards", "2"});
  const Ran two = run({"--workers", "2", "--shards", "2"});
  EXPECT_EQ(weights(one), weights(two));
  EXPECT_EQ(weights(run({"--distributed", "workers=2"})), weights(two));
  EXPECT_EQ(run({"--distributed", "engine=DeviceEngine"}).code, kBadUsage)
      << "one process, but distributed";
  EXPECT_EQ(weights(run({"--ddp", "engine={DistributedDataParallelEngine: {shards: 2}}",
                         "--workers", "2"})),
            weights(two));
  EXPECT_EQ(weights(run({"engine={DistributedDataParallelEngine: {backend: gloo}}", "--workers",
                         "2", "engine.reduction=ordered"})),
            weights(two));
  const Ran refused = run({"engine={DistributedDataParallelEngine: {backend: pigeon}}"});
  EXPECT_EQ(refused.code, kBadUsage);
  EXPECT_THAT(refused.errors, HasSubstr("engine/backend: expected auto, shm or"));
}

TEST_F(Run, ConfigsAreLaidOverEachOther) {
  write_file_atomically(folder_ / "over.json", R"({"num_epochs": 1, "optimizer": {"lr": 0.5}})");
  const Ran ran = run({path("over.json"), "--print-config", "--set", "valid_metric=loss",
                       "--stages/one/num_epochs=3:int"});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, HasSubstr("num_epochs: 1"));
  EXPECT_THAT(ran.output, HasSubstr("lr: 0.5"));
  EXPECT_THAT(ran.output, HasSubstr("valid_metric: loss"));
  EXPECT_THAT(ran.output, HasSubstr("stages:\n  one:\n    num_epochs: 3"));
  EXPECT_THAT(ran.output, Not(HasSubstr("weights ")));
}

TEST_F(Run, FlagsOfTheSeedsCommand) {
  EXPECT_THAT(run({"--check", "--num-epochs", "5"}).output,
              HasSubstr("a check of 3 epochs of 3 batches"));
  EXPECT_THAT(run({"--timeit", "--logdir", path("t")}).output, HasSubstr("_timer"));
  EXPECT_EQ(run({"--overfit", "--no-verbose", "--deterministic"}).code, kDone);
  EXPECT_EQ(run({"--baselogdir", path("base")}).code, kDone);
  EXPECT_EQ(run({"--baselogdir", path("base")}).code, kDone);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("base")), {}), 2)
      << "two runs in one second have two folders";
  const auto runs = std::filesystem::directory_iterator(path("base"));
  EXPECT_TRUE(std::filesystem::exists(runs->path() / "configs/config.yml"));
  EXPECT_EQ(run({"--autoresume", "first"}).code, kBadUsage);
  EXPECT_EQ(run({"--autoresume", "last"}).code, kBadUsage) << "without a logdir";
}

TEST_F(Run, WhatTheMachineDecidedIsWrittenDown) {
  ASSERT_EQ(run({"--workers", "2", "--logdir", path("w"), "logdir=" + path("2026")}).code, kDone);
  EXPECT_THAT(read_file(path("w/configs/config.yml")), HasSubstr("shards: 2"));
  EXPECT_THAT(read_file(path("w/configs/config.yml")), HasSubstr("seed: 42"));
  EXPECT_THAT(run({"--workers", "2", "--print-config"}).output, HasSubstr("shards: 2"));
}

TEST_F(Run, UnderALauncherAllTrainTogether) {
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("RANK", "0", 1);
  ::setenv("LOCAL_RANK", "0", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", "1", 1);
  const Ran printed = run({"--print-config"});
  const Ran refused = run({"--workers", "3", "--print-config"});
  for (const char* const name :
       {"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    ::unsetenv(name);
  EXPECT_THAT(printed.output, HasSubstr("ddp: true"));
  EXPECT_EQ(refused.code, kBadUsage);
  EXPECT_THAT(refused.errors, HasSubstr("the launcher started 2 processes on this host"));
}

TEST_F(Run, APluginIsAddedToWhateverIsThere) {
  EXPECT_THAT(run({"plugins=", "--plugin", "nope.so"}).errors, HasSubstr("nope.so"));
  EXPECT_THAT(run({"plugins=a.so", "--plugin", "nope.so"}).errors, HasSubstr("a.so"));
}

TEST_F(Run, GoesOnWhereItStopped) {
  const std::string straight = weights(run({"--num-epochs", "4"}));
  EXPECT_EQ(run({"--logdir", path("r"), "--autoresume", "last"}).code, kDone)
      << "there is no earlier run yet";
  EXPECT_EQ(weights(run({"--logdir", path("r"), "--autoresume", "last", "--num-epochs", "4"})),
            straight);
  run({"--logdir", path("s")});
  EXPECT_EQ(weights(run({"--logdir", path("s"), "--resume", "last", "--num-epochs", "4"})),
            straight);
}

TEST_F(Run, AResumedRunWritesTheSeedThatItUses) {
  const auto config_of = [&](const std::string& logdir) {
    return read_file(path(logdir + "/configs/config.yml"));
  };
  const std::string straight = weights(run({"--seed", "7", "--num-epochs", "4"}));
  for (const char* const flag : {"--resume", "--autoresume"}) {
    const std::string logdir = std::string("seed") + flag;
    run({"--seed", "7", "--logdir", path(logdir)});
    const Ran printed =
        run({"--logdir", path(logdir), flag, "last", "--num-epochs", "4", "--print-config"});
    EXPECT_THAT(printed.output, HasSubstr("\nseed: 7")) << flag;
    const Ran resumed = run({"--logdir", path(logdir), flag, "last", "--num-epochs", "4"});
    EXPECT_EQ(weights(resumed), straight) << flag;
    EXPECT_THAT(config_of(logdir), HasSubstr("\nseed: 7")) << flag;
    const auto documents =
        checkpoint::load(path(logdir + "/checkpoints/last.pth")).get<StateDict>("documents");
    EXPECT_EQ(documents.get<std::string>("config"), config_of(logdir)) << flag;
  }
  // The written config repeats the whole run.
  EXPECT_EQ(
      weights(run_command({"run", "-C", path("seed--resume/configs"), "--logdir", path("b")})),
      straight);
}

TEST_F(Run, MistakesAreToldWithCodeTwo) {
  const Ran typo = run({"--lgdir", "x"});
  EXPECT_EQ(typo.code, kBadUsage);
  EXPECT_THAT(typo.errors, HasSubstr("did you mean '--logdir'"));
  const Ran wrong = run({"optimizer.lr=-1"});
  EXPECT_EQ(wrong.code, kBadUsage);
  EXPECT_THAT(wrong.errors, HasSubstr("command line: optimizer/lr"));
  write_file_atomically(folder_ / "bad.yml", "optimizer:\n  lr: fast\n");
  EXPECT_THAT(run({path("bad.yml")}).errors,
              HasSubstr("bad.yml:2: optimizer/lr: expected a number"));
}

}  // namespace
}  // namespace lockstep::command
