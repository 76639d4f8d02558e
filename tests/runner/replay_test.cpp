#include "lockstep/runner/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/log/csv_logger.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Notes the hooks, and the metrics at the ends of epochs.
struct Noted {
  std::shared_ptr<toy::Hooks> hooks = std::make_shared<toy::Hooks>();
  std::vector<std::string> calls;
  std::map<std::int64_t, EpochMetrics> seen;

  Noted() {
    hooks->run_start = [this](State& s) {
      calls.push_back(fmt::format("run of {}", s.progress.num_epochs));
    };
    hooks->epoch_start = [this](State& s) {
      EXPECT_TRUE(s.epoch_metrics.empty());
      calls.push_back(fmt::format("start {}", s.progress.epoch));
    };
    hooks->epoch_end = [this](State& s) {
      calls.push_back(fmt::format("end {}", s.progress.epoch));
      seen[s.progress.epoch] = s.epoch_metrics;
      EXPECT_EQ(s.history, seen);
    };
    hooks->run_end = [this](State&) { calls.push_back("over"); };
  }
};

TEST(Replay, CallsTheHooksWithTheMetricsOfTheRun) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  SupervisedRunner runner;
  const auto result = runner.train(options);
  Noted noted;
  runner.replay({.callbacks = {noted.hooks}, .history = result.history});
  EXPECT_EQ(noted.seen, result.history);
  EXPECT_THAT(noted.calls, ElementsAre("run of 2", "start 1", "end 1", "start 2", "end 2", "over"));
}

TEST(Replay, ReadsTheFolderOfARun) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  const auto result = toy::train(options);
  Noted noted;
  Runner::replay({.callbacks = {noted.hooks}, .history = folder / "run"});
  EXPECT_EQ(noted.seen, result.history) << "to the last digit";
}

TEST(Replay, LeavesOutAnEpochThatWasNotFinished) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  toy::train(options);
  const auto train = folder / "run/logs/train.csv";
  const std::string text = read_file(train);
  const std::string row = text.substr(text.rfind("\n3,") + 2);
  write_file_atomically(train, text + "4" + row);
  EXPECT_EQ(read_history(folder / "run").rbegin()->first, 3);
}

TEST(Replay, LoggersWriteTheFilesOfTheRun) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  const auto result = toy::train(options);
  Runner::replay({.loggers = {std::make_shared<CsvLogger>(folder / "copy")},
                  .history = result.history,
                  .hparams = {{"size", std::int64_t{3}}}});
  for (const char* const file : {"logs/train.csv", "logs/valid.csv", "logs/_epoch_.csv"}) {
    EXPECT_EQ(read_file(folder / "copy" / file), read_file(folder / "run" / file));
  }
  EXPECT_THAT(read_file(folder / "copy/logs/hparams.yml"), HasSubstr("size: 3"));
}

TEST(Replay, ACallbackMayEndIt) {
  int epochs = 0;
  Runner::replay({.callbacks = {on_epoch_end([&](State& s) {
                    if (++epochs == 2) s.request_stop("enough");
                  })},
                  .history = std::map<std::int64_t, EpochMetrics>{{1, {}}, {2, {}}, {3, {}}}});
  EXPECT_EQ(epochs, 2);
}

TEST(Replay, RefusesWhatCannotBe) {
  TemporaryDirectory folder;
  EXPECT_THAT(toy::error_of([&] { Runner::replay({.history = folder.path()}); }),
              HasSubstr("logs/*.csv"));
  EXPECT_THAT(toy::error_of([] { Runner::replay({}); }), HasSubstr("history"));
  EXPECT_THAT(toy::error_of([] {
                Runner::replay({.callbacks = {EarlyStoppingCallback({.patience = 1})},
                                .history = std::map<std::int64_t, EpochMetrics>{{1, {}}}});
              }),
              HasSubstr("train() only"));
}

TEST(Replay, AFailureReachesTheCallbacks) {
  auto hooks = std::make_shared<toy::Hooks>();
  int failures = 0;
  hooks->epoch_end = [](State&) { throw Error("boom"); };
  hooks->exception = [&](State& s) { failures += s.exception != nullptr ? 1 : 0; };
  EXPECT_THAT(toy::error_of([&] {
                Runner::replay({.callbacks = {hooks},
                                .history = std::map<std::int64_t, EpochMetrics>{{1, {}}}});
              }),
              HasSubstr("boom"));
  EXPECT_EQ(failures, 1);
}

}  // namespace
}  // namespace lockstep
