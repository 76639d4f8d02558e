#include "lockstep/callback/progress_bar.h"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "tests/log/captured_stream.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Shown {
  bool terminal = true;
  ProgressBars bars = ProgressBars::kPasses;
  std::int64_t epochs = 1;
  std::shared_ptr<toy::Hooks> hooks = std::make_shared<toy::Hooks>();
  CapturedStream stream = {};

  // Returns what was written to the console by a run.
  std::string run() {
    Console console({.stream = stream.file(), .terminal = terminal, .width = 120, .utf8 = false});
    TrainOptions options = toy::options();
    options.num_epochs = epochs;
    options.callbacks = {ProgressBarCallback(console, bars), AccuracyCallback({.num_classes = 3}),
                         hooks};
    result = toy::error_of([&] { metrics = toy::train(options).last_metrics; });
    return stream.flushed();
  }

  std::string result = {};
  EpochMetrics metrics = {};
};

TEST(ProgressBarCallback, ShowsEachPassOnATerminal) {
  const std::string output = Shown().run();
  EXPECT_THAT(output, HasSubstr("1/1 * Epoch (train)"));
  EXPECT_THAT(output, HasSubstr("1/1 * Epoch (valid)"));
  EXPECT_THAT(output, HasSubstr("7/7"));
  EXPECT_THAT(output, HasSubstr("accuracy01="));
  EXPECT_THAT(output, HasSubstr("loss="));
  EXPECT_THAT(output, HasSubstr("samples/s"));
}

// Callbacks of metrics reset what they accumulated at the end of a pass, before the bar writes its
// last line.
TEST(ProgressBarCallback, TheLastLineHasTheWholePassesMetrics) {
  Shown shown;
  const std::string lines = screen(shown.run());
  EXPECT_THAT(lines, Not(HasSubstr("nan")));
  for (const char* const loader : {"train", "valid"}) {
    EXPECT_THAT(lines, HasSubstr(fmt::format("loss={:.3f}, accuracy01={:.3f}\n",
                                             shown.metrics.at(loader).at("loss"),
                                             shown.metrics.at(loader).at("accuracy01"))));
  }
}

// In a file, a plain line appears only if a pass takes longer than ten seconds. That would make the
// test too long, so it checks that a shorter pass writes nothing.
TEST(ProgressBarCallback, DrawsNoBarInAFile) {
  EXPECT_EQ(Shown{.terminal = false}.run(), "");
}

TEST(ProgressBarCallback, DisappearsWhenTheRunFails) {
  Shown shown;
  std::string before;
  shown.hooks->backward = [&](State&) {
    before = screen(shown.stream.flushed());
    throw Error("boom");
  };
  const std::string after = screen(shown.run());
  EXPECT_THAT(shown.result, HasSubstr("boom"));
  EXPECT_THAT(before, HasSubstr("1/1 * Epoch (train)")) << "there was a bar";
  EXPECT_EQ(after, "") << "and it is gone";
}

TEST(ProgressBarCallback, ShowsOneBarForTheRun) {
  Shown shown{.bars = ProgressBars::kRun, .epochs = 3};
  std::vector<std::string> bars;
  shown.hooks->epoch_start = [&](State&) { bars.push_back(screen(shown.stream.flushed())); };
  const std::string lines = screen(shown.run());
  EXPECT_THAT(bars.front(), HasSubstr("Run:   0% |          | 0/3 epochs"));
  EXPECT_THAT(lines, testing::StartsWith("Run: 100% |##########| 3/3 epochs ["));
  EXPECT_THAT(lines, HasSubstr(fmt::format("loss={:.3f}, accuracy01={:.3f}\n",
                                           shown.metrics.at("valid").at("loss"),
                                           shown.metrics.at("valid").at("accuracy01"))));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << "one line stays";
}

TEST(ProgressBarCallback, TheBarOfTheRunDisappearsWhenItFails) {
  Shown shown{.bars = ProgressBars::kRun};
  shown.hooks->backward = [&](State&) { throw Error("boom"); };
  EXPECT_EQ(screen(shown.run()), "");
  EXPECT_THAT(shown.result, HasSubstr("boom"));
}

}  // namespace
}  // namespace lockstep
