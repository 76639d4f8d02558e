#include "lockstep/runner/stages.h"

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/lambda.h"
#include "tests/support/launched_run.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Makes its model, and has another optimizer in each stage.
class Staged : public SupervisedRunner {
 public:
  int models = 0;
  std::vector<std::string> lrs;
  std::string outside() const { return stage(); }

 protected:
  Model get_model() override {
    ++models;
    return toy::model();
  }
  optim::OptimizerSpec get_optimizer() override {
    return optim::Adam{.lr = stage() == "first" ? 0.01 : 0.002};
  }
  void on_run_start(State& s) override {
    lrs.push_back(fmt::format("{} {}", stage(), s.optimizer->lr()));
  }
};

TrainOptions without_model(const std::filesystem::path& logdir) {
  TrainOptions options = toy::options();
  options.model = {};
  options.logdir = logdir;
  return options;
}

std::vector<Stage> two_stages(const std::filesystem::path& logdir) {
  TrainOptions second = without_model(logdir);
  second.num_epochs = 4;
  return {{"first", without_model(logdir)}, {"second", second}};
}

TEST(Stages, WeightsGoOnAndEachHasItsFolder) {
  const TemporaryDirectory folder;
  Staged runner;
  const auto result = runner.train_stages(two_stages(folder / "run"));
  EXPECT_EQ(runner.models, 1);
  EXPECT_THAT(runner.lrs, ElementsAre("first 0.01", "second 0.002"));
  EXPECT_EQ(runner.outside(), "");
  EXPECT_EQ(result.history.size(), 4u) << "of the last stage";
  for (const char* const name : {"first", "second"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "run" / name / "checkpoints/last.pth")) << name;
  }
  // The same by hand.
  TrainOptions first = toy::options();
  TrainOptions second = toy::options();
  second.model = toy::train(first).model;
  second.optimizer = optim::Adam{.lr = 0.002};
  second.num_epochs = 4;
  EXPECT_EQ(toy::train(second).weights_hash, result.weights_hash);
}

TEST(Stages, AModelIsGivenInTheFirstStageOnly) {
  const TemporaryDirectory folder;
  std::vector<Stage> stages = two_stages(folder / "run");
  stages[0].options.model = toy::model();
  const Model model = stages[0].options.model;
  const auto result = SupervisedRunner().train_stages(stages);
  EXPECT_TRUE(result.model.parameters()[0].second.is_same(model.parameters()[0].second));
}

TEST(Stages, ResumeContinuesInTheRightStage) {
  const TemporaryDirectory folder;
  const auto resumed = [&](const std::filesystem::path& logdir) {
    return Staged().train_stages(two_stages(logdir), {.resume = "last"}).weights_hash;
  };
  const std::string straight = resumed(folder / "straight");  // there is no earlier run

  std::vector<Stage> only_first = two_stages(folder / "between");
  only_first.pop_back();
  Staged().train_stages(only_first);
  EXPECT_EQ(resumed(folder / "between"), straight) << "the second stage had not begun";

  for (const auto& [stage, epoch] : {std::pair("first", 2), std::pair("second", 3)}) {
    const auto logdir = folder / stage;
    std::vector<Stage> failing = two_stages(logdir);
    for (Stage& part : failing) {
      if (part.name != stage) continue;
      part.options.callbacks = {
          on_epoch_start([](State&) {
            throw Error("stopped");
          }).only_if([at = epoch](const State& s) { return s.progress.epoch == at; })};
    }
    EXPECT_THAT(toy::error_of([&] { Staged().train_stages(failing); }), HasSubstr("stopped"));
    EXPECT_EQ(resumed(logdir), straight) << stage;
  }
}

// The first stage is left out in the second attempt. The second one finds its point all the same.
TEST(Stages, AStageThatIsRestartedByALauncherGoesOnFromItsPoint) {
  const TemporaryDirectory folder;
  const auto stages = [&] {
    std::vector<Stage> both = two_stages(folder / "run");
    both[1].options.callbacks.add(on_epoch_end([](State& state) {
      if (state.restarts == 0 && state.progress.epoch == 2) ::raise(SIGKILL);
    }));
    for (Stage& stage : both) stage.options.ddp = true;
    return both;
  };
  run_killed_once([&](const process::MemoryFile&) {
    return Staged().train_stages(stages(), {.resume = "last"}).recoveries == 1 ? 0 : 2;
  });
}

TEST(Stages, ResumeWithoutASeedKeepsTheSeedOfTheEarlierRunInAllStages) {
  const TemporaryDirectory folder;
  const auto stages = [&](const char* name, std::optional<std::uint64_t> seed) {
    std::vector<Stage> made = two_stages(folder / name);
    for (Stage& stage : made) stage.options.seed = seed;
    return made;
  };
  const std::string straight = Staged().train_stages(stages("straight", 7)).weights_hash;
  std::vector<Stage> only_first = stages("parts", 7);
  only_first.pop_back();
  Staged().train_stages(only_first);
  EXPECT_EQ(Staged().train_stages(stages("parts", {}), {.resume = "last"}).weights_hash, straight);
}

TEST(Stages, AFinishedStageEndsWithItsBestWeightsIfItSaysSo) {
  const TemporaryDirectory folder;
  const auto stages = [&](const std::filesystem::path& logdir) {
    std::vector<Stage> made = two_stages(logdir);
    made[0].options.load_best_on_end = true;
    // The first epoch is the best.
    made[0].options.callbacks = {on_loader_end([](State& s) {
      if (s.loader == "valid") s.loader_metrics["loss"] = double(s.progress.epoch);
    })};
    return made;
  };
  const std::string straight = Staged().train_stages(stages(folder / "straight")).weights_hash;
  std::vector<Stage> only_first = stages(folder / "parts");
  only_first.pop_back();
  Staged().train_stages(only_first);
  EXPECT_EQ(Staged().train_stages(stages(folder / "parts"), {.resume = "last"}).weights_hash,
            straight);
}

// Its own file is not read again, so nothing of it is left out.
TEST(Stages, TheStageAfterAFinishedOneTakesAllItsWeights) {
  const TemporaryDirectory folder;
  std::vector<Stage> only_first = two_stages(folder / "run");
  only_first.pop_back();
  Staged().train_stages(only_first);
  std::vector<Stage> stages = two_stages(folder / "run");
  stages[1].options.weights = folder / "other.pth";
  stages[1].options.weights_skip = {"fc.*"};
  resume_stages(stages, "last");
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(stages[0].options.weights.path().filename(), "last.pth");
  EXPECT_TRUE(stages[0].options.weights_skip.empty());
}

TEST(Stages, RefusesNamesThatCannotBe) {
  const auto error = [](const std::vector<Stage>& stages) {
    return toy::error_of([&] { SupervisedRunner().train_stages(stages); });
  };
  EXPECT_THAT(error({}), HasSubstr("at least one"));
  EXPECT_THAT(error({{"a", {}}, {"a", {}}}), HasSubstr("two of them are called 'a'"));
  EXPECT_THAT(error({{"a/b", {}}}), HasSubstr("'a/b'"));
  EXPECT_THAT(error({{"", {}}, {"a", {}}}), HasSubstr("a name that a folder can have"));
}

TEST(Stages, ResumeNeedsMoreThanWeights) {
  const TemporaryDirectory folder;
  std::vector<Stage> stages = two_stages(folder / "run");
  for (Stage& stage : stages) {
    stage.options.callbacks = {CheckpointCallback({.mode = CheckpointMode::kModel})};
  }
  Staged().train_stages(stages);
  EXPECT_THAT(toy::error_of([&] { Staged().train_stages(stages, {.resume = "last"}); }),
              AllOf(HasSubstr("second/checkpoints/last.pth: holds weights only"),
                    HasSubstr("mode 'full' of CheckpointCallback")));
}

TEST(Stages, ResumeNeedsTheLogdir) {
  std::vector<Stage> stages(2);
  EXPECT_THROW(resume_stages(stages, "last"), ConfigError);
  const TemporaryDirectory folder;
  for (auto& stage : stages) stage.options.logdir = folder / "nothing";
  resume_stages(stages, "last");
  EXPECT_EQ(stages.size(), 2u);
  EXPECT_FALSE(stages[0].options.resume);
}

}  // namespace
}  // namespace lockstep
