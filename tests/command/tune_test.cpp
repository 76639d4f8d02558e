#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "tests/command/support.h"
#include "tests/support/torch_fork.h"

namespace lockstep::command {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Ran;
using testing::run_command;
namespace fs = std::filesystem;

class Tune : public ::testing::Test {
 protected:
  Tune() { write_file_atomically(folder_ / "tiny.yml", testing::kTinyConfig); }

  Ran tune(std::vector<std::string> words) const {
    words.insert(words.begin(), {"tune", "-C", path("tiny.yml")});
    return run_command(words);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string results(const std::string& search) const {
    return read_file(folder_ / search / "results.csv");
  }

  TemporaryDirectory folder_;
};

TEST_F(Tune, TheBestTrialIsThatOfItsConfig) {
  const Ran ran =
      tune({"--param", "optimizer.lr=loguniform(1e-4, 1)", "--param",
            "loaders.train.batch_size=choice(8, 16)", "--trials", "4", "--logdir", path("search")});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(ran.output, AllOf(HasSubstr("Trial 1 of 4: optimizer.lr="), HasSubstr("Best: trial "),
                                HasSubstr("valid/loss"), Not(HasSubstr("train (1/2)"))));
  // A run of best.yml has the weights of the best trial.
  const std::size_t at = ran.output.find("Best: trial ");
  const int best = std::stoi(ran.output.substr(at + std::string("Best: trial ").size()));
  const auto trial = nlohmann::json::parse(
      read_file(folder_ / fmt::format("search/trial.{:04}/trial.json", best)));
  const Ran run = run_command({"run", "-C", path("search/best.yml")});
  EXPECT_EQ(run.code, kDone) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("weights " + trial["weights_hash"].get<std::string>()));
  EXPECT_FALSE(fs::exists(folder_ / "search/.lock"));
}

TEST_F(Tune, FinishedTrialsAreNotRepeated) {
  const std::vector<std::string> words = {"--param", "optimizer.lr=uniform(0.1, 0.5)", "--logdir",
                                          path("search")};
  const auto with = [&](const std::string& trials) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--trials", trials});
    return tune(all);
  };
  ASSERT_EQ(with("2").code, kDone);
  const auto when = fs::last_write_time(folder_ / "search/trial.0001/summary.json");
  const std::string before = results("search");
  const Ran more = with("3");
  ASSERT_EQ(more.code, kDone) << more.errors;
  EXPECT_THAT(more.output, AllOf(HasSubstr("Trial 1 of 3 was done before"),
                                 HasSubstr("Trial 2 of 3 was done before"),
                                 HasSubstr("Trial 3 of 3: optimizer.lr=")));
  EXPECT_EQ(fs::last_write_time(folder_ / "search/trial.0001/summary.json"), when);
  EXPECT_EQ(results("search").substr(0, before.size()), before);
}

TEST_F(Tune, AnotherSearchIsRefused) {
  const auto search = [&](const std::string& range) {
    return tune({"--param", "optimizer.lr=" + range, "--trials", "1", "--logdir", path("search")});
  };
  ASSERT_EQ(search("choice(0.1)").code, kDone);
  const Ran other = search("choice(0.2)");
  EXPECT_EQ(other.code, kBadUsage);
  EXPECT_THAT(other.errors, AllOf(HasSubstr("another search"), HasSubstr("'params'")));
}

TEST_F(Tune, AnInterruptedTrialGoesOn) {
  const std::vector<std::string> words = {
      "--param",        "optimizer.lr=uniform(0.1, 0.5)", "--trials", "2", "--num-epochs", "300",
      "--no-early-stop"};
  const auto search = [&](const std::string& name) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--logdir", path(name)});
    return all;
  };
  const pid_t child = fork_with_autograd();
  ASSERT_GE(child, 0);
  if (child == 0) {
    tune(search("killed"));
    _exit(0);
  }
  // Ends it when the second trial has a checkpoint.
  const fs::path checkpoint = folder_ / "killed/trial.0002/checkpoints/last.pth";
  for (int i = 0; i < 6000 && !fs::exists(checkpoint); ++i) ::usleep(10'000);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it was not finished yet";
  ASSERT_FALSE(fs::exists(folder_ / "killed/trial.0002/trial.json"));
  const Ran rest = tune(search("killed"));
  ASSERT_EQ(rest.code, kDone) << rest.errors;
  ASSERT_EQ(tune(search("calm")).code, kDone);
  EXPECT_EQ(results("killed"), results("calm"));
  EXPECT_EQ(read_file(folder_ / "killed/trial.0002/trial.json"),
            read_file(folder_ / "calm/trial.0002/trial.json"));
}

TEST_F(Tune, AnInterruptedTrialThatSavesWeightsOnlyBeginsAnew) {
  const std::vector<std::string> words = {
      "--param",  "optimizer.lr=uniform(0.1, 0.5)",
      "--trials", "2",
      "--logdir", path("search"),
      "--set",    "callbacks=[{CheckpointCallback: {mode: model}}]"};
  ASSERT_EQ(tune(words).code, kDone);
  const std::string straight = results("search");
  // As if it had been killed after its last checkpoint.
  ASSERT_TRUE(fs::exists(folder_ / "search/trial.0002/checkpoints/last.pth"));
  ASSERT_TRUE(fs::remove(folder_ / "search/trial.0002/trial.json"));
  const Ran rest = tune(words);
  EXPECT_EQ(rest.code, kDone) << rest.errors;
  EXPECT_THAT(rest.output, Not(HasSubstr("failed")));
  EXPECT_EQ(results("search"), straight);
}

TEST_F(Tune, AGridOfTheConfigsSection) {
  write_file_atomically(folder_ / "grid.yml",
                        "tune:\n"
                        "  method: grid\n"
                        "  early_stop: false\n"
                        "  params:\n"
                        "    optimizer.lr: [0.1, 0.2]\n"
                        "    optimizer.momentum: choice(0, 0.9)\n");
  const Ran ran = tune({path("grid.yml"), "--logdir", path("search")});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(results("search"), AllOf(HasSubstr(",0.1,0,"), HasSubstr(",0.1,0.9,"),
                                       HasSubstr(",0.2,0,"), HasSubstr(",0.2,0.9,")));
  EXPECT_EQ(run_command({"run", "-C", path("tiny.yml"), path("grid.yml")}).code, kDone)
      << "the same config can be run";
}

TEST_F(Tune, BadTrialsAreStoppedEarly) {
  // The first trials learn; the last one cannot.
  const Ran ran = tune({"--param", "optimizer.lr=choice(0.5, 0.4, 1e-9)", "--method", "grid",
                        "--warmup-trials", "2", "--num-epochs", "4", "--logdir", path("search")});
  ASSERT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(results("search"), HasSubstr("\n3,stopped,1,1,"));
  EXPECT_THAT(results("search"), HasSubstr("\n1,finished,4,"));
}

TEST_F(Tune, ATrialThatFailsDoesNotEndTheSearch) {
  const Ran ran = tune({"--param", "optimizer.lr=choice(1e38, 0.1)", "--method", "grid", "--logdir",
                        path("search"), "terminate_on_nan=true"});
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(results("search"), AllOf(HasSubstr("\n1,failed,"), HasSubstr("\n2,finished,")));
}

// The values of a trial may not fit together, or be out of range.
TEST_F(Tune, AMistakeInTheValuesOfATrialDoesNotEndTheSearch) {
  const std::vector<std::string> words = {
      "--param", "optimizer.lr=choice(-1, 0.1)", "--method", "grid", "--logdir", path("search")};
  const Ran ran = tune(words);
  EXPECT_EQ(ran.code, kDone) << ran.errors;
  EXPECT_THAT(results("search"), AllOf(HasSubstr("\n1,failed,"), HasSubstr("\n2,finished,")));
  EXPECT_THAT(tune(words).output, HasSubstr("Trial 1 of 2 was done before: failed"));
}

TEST_F(Tune, TheSameMistakeInAllTrialsIsTheConfigs) {
  const Ran ran = tune({"--param", "optimizer.lr=choice(-1, -2, -3, 0.1)", "--method", "grid",
                        "--logdir", path("search")});
  EXPECT_EQ(ran.code, kBadUsage);
  EXPECT_THAT(ran.errors, HasSubstr("-1"));
  for (const char* const trial : {"trial.0001", "trial.0002", "trial.0003"}) {
    EXPECT_FALSE(fs::exists(folder_ / "search" / trial / "trial.json")) << trial;
  }
}

TEST_F(Tune, MistakesAreNamed) {
  const auto errors = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--logdir", path("search")});
    const Ran ran = tune(words);
    fs::remove_all(folder_ / "search");
    EXPECT_EQ(ran.code, kBadUsage);
    return ran.errors;
  };
  EXPECT_THAT(errors({}), HasSubstr("nothing to search"));
  EXPECT_THAT(errors({"--param", "optimizer.lr"}), HasSubstr("path=range"));
  EXPECT_THAT(errors({"--param", "optimizer.lr=normal(0, 1)"}), HasSubstr("loguniform"));
  EXPECT_THAT(errors({"--param", "optimzer.lr=choice(1)"}), HasSubstr("optimizer"));
  EXPECT_THAT(errors({"--param", "optimizer.lr=uniform(0, 1)", "--method", "grid"}),
              HasSubstr("a grid needs"));
  EXPECT_THAT(errors({"--param", "seed=int(1, 2)", "--metric", "acuracy"}), HasSubstr("acuracy"));
  EXPECT_THAT(errors({"--param", "seed=int(1, 2)", "--trials", "0"}), HasSubstr("trials"));
  EXPECT_THAT(errors({"--param", "seed=int(1, 2)", "tune.trails=3"}), HasSubstr("trails"));
  EXPECT_THAT(errors({"--param", "seed=int(1, 2)", "stages={a: {}}"}), HasSubstr("without stages"));
  EXPECT_THAT(tune({"--param", "seed=int(1, 2)"}).errors, HasSubstr("--logdir"));
}

}  // namespace
}  // namespace lockstep::command
