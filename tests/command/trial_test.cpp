#include "lockstep/command/trial.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"

namespace lockstep::command {
namespace {

using ::testing::HasSubstr;

Trial trial_with(std::int64_t number, std::map<std::int64_t, double> scores) {
  Trial trial{.number = number, .values = {{"lr", "0.1"}}, .scores = std::move(scores)};
  for (const auto& [epoch, score] : trial.scores) {
    if (trial.best_epoch > 0 && score >= trial.best_score) continue;
    trial.best_epoch = epoch;
    trial.best_score = score;
  }
  return trial;
}

TEST(Trial, IsWrittenAndRead) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(read_trial(folder / "trial.0001"));
  Trial trial = trial_with(1, {{1, 0.5}, {3, 0.1}});
  trial.status = Trial::Status::kStopped;
  trial.better = Better::kLarger;
  trial.weights_hash = "abc";
  write_trial(folder / "trial.0001", trial);
  const auto read = read_trial(folder / "trial.0001");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 1);
  EXPECT_EQ(read->status, Trial::Status::kStopped);
  EXPECT_EQ(read->values, trial.values);
  EXPECT_EQ(read->scores, trial.scores);
  EXPECT_EQ(read->best_epoch, 3);
  EXPECT_EQ(read->best_score, 0.1);
  EXPECT_EQ(read->better, Better::kLarger);
  EXPECT_EQ(read->weights_hash, "abc");
  write_file_atomically(folder / "trial.0001/trial.json", "{}");
  EXPECT_THROW(read_trial(folder / "trial.0001"), Error);
}

TEST(Trials, TheTableHasTheBestFirst) {
  Trial failed{.number = 3, .status = Trial::Status::kFailed, .values = {{"lr", "9"}}};
  failed.error = "out of memory, twice";
  const std::vector<Trial> trials = {trial_with(1, {{1, 0.5}}), trial_with(2, {{1, 0.25}}), failed};
  EXPECT_EQ(trial_table(trials, {.metric = "valid/loss"}),
            "trial  status    epoch  valid/loss  lr\n"
            "2      finished  1      0.25        0.1\n"
            "1      finished  1      0.5         0.1\n"
            "3      failed    -      -           9\n");
  EXPECT_THAT(trial_table(trials, {.metric = "valid/loss", .most = 1}), HasSubstr("… and 2 more"));
  EXPECT_EQ(trials_as_csv(trials, "valid/loss"),
            "trial,status,epochs,best_epoch,valid/loss,lr,weights,error\n"
            "1,finished,1,1,0.5,0.1,,\n"
            "2,finished,1,1,0.25,0.1,,\n"
            "3,failed,0,,,9,,\"out of memory, twice\"\n");
}

TEST(Trials, ALargerScoreMayBeBetter) {
  std::vector<Trial> trials = {trial_with(1, {{1, 0.5}}), trial_with(2, {{1, 0.75}})};
  EXPECT_EQ(ranked(trials).front().number, 1);
  for (Trial& trial : trials) trial.better = Better::kLarger;
  EXPECT_EQ(ranked(trials).front().number, 2);
}

// A run of 4 epochs that is at the end of an epoch.
class MedianRuleTest : public ::testing::Test {
 protected:
  MedianRuleTest() {
    state_.selection = {.key = MetricKey{.loader = "valid"}, .minimize = true};
    state_.progress.num_epochs = 4;
  }

  // The callback of a trial with these losses so far.
  TrialCallback observe(const std::vector<double>& losses, const MedianRule& rule) {
    TrialCallback callback(rule, before_);
    for (const double loss : losses) {
      state_.progress.epoch += 1;
      state_.history[state_.progress.epoch]["valid"]["loss"] = loss;
      callback.on_epoch_end(state_);
      if (state_.stop_reason) break;
    }
    return callback;
  }

  std::vector<Trial> before_ = {trial_with(1, {{1, 0.9}, {2, 0.5}, {3, 0.3}, {4, 0.2}}),
                                trial_with(2, {{1, 0.8}, {2, 0.4}, {3, 0.4}, {4, 0.4}}),
                                trial_with(3, {{1, 2.0}})};
  State state_;
};

TEST_F(MedianRuleTest, StopsATrialThatIsWorse) {
  // The median after epoch 1 is 0.9; after epoch 2 it is 0.45, because trial 3 was over.
  const TrialCallback callback = observe({0.9, 0.5, 0.1}, {.warmup_trials = 3});
  EXPECT_EQ(state_.progress.epoch, 2);
  EXPECT_EQ(callback.trial().status, Trial::Status::kStopped);
  EXPECT_EQ(callback.trial().best_epoch, 2);
  EXPECT_THAT(*state_.stop_reason, HasSubstr("valid/loss 0.500 is worse than the median"));
}

TEST_F(MedianRuleTest, TheBestEpochSoFarCounts) {
  observe({0.4, 5, 5, 5}, {.warmup_trials = 3});
  EXPECT_EQ(state_.progress.epoch, 3) << "the median falls to 0.35";
}

TEST_F(MedianRuleTest, WaitsForTrialsAndEpochs) {
  observe({9, 9, 9, 9}, {.warmup_trials = 4});
  EXPECT_FALSE(state_.stop_reason);
  state_.progress.epoch = 0;
  state_.history.clear();
  observe({9, 9, 9, 9}, {.warmup_trials = 3, .warmup_epochs = 3});
  EXPECT_EQ(state_.progress.epoch, 3);
}

TEST_F(MedianRuleTest, DoesNotStopInTheLastEpoch) {
  const TrialCallback callback = observe({9, 9, 9, 9}, {.warmup_trials = 3, .warmup_epochs = 4});
  EXPECT_FALSE(state_.stop_reason);
  EXPECT_EQ(callback.trial().status, Trial::Status::kFinished);
}

TEST_F(MedianRuleTest, NotANumberIsWorst) {
  const TrialCallback callback = observe({std::nan("")}, {.warmup_trials = 3});
  EXPECT_TRUE(state_.stop_reason);
  EXPECT_EQ(callback.trial().best_epoch, 0);
}

TEST_F(MedianRuleTest, AResumedTrialIsJudgedAtItsStart) {
  state_.progress.epoch = 1;
  state_.history[1]["valid"]["loss"] = 5;
  TrialCallback callback(MedianRule{.warmup_trials = 3}, before_);
  callback.on_run_start(state_);
  EXPECT_TRUE(state_.stop_reason);
}

TEST_F(MedianRuleTest, WithoutARuleItOnlyObserves) {
  TrialCallback callback(std::nullopt, before_);
  state_.progress.epoch = 1;
  state_.history[1]["valid"]["loss"] = 5;
  callback.on_epoch_end(state_);
  EXPECT_FALSE(state_.stop_reason);
  EXPECT_EQ(callback.trial().scores.at(1), 5);
}

}  // namespace
}  // namespace lockstep::command
