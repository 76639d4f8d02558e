#include "lockstep/log/progress_bar.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/log/captured_stream.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using TimePoint = std::chrono::steady_clock::time_point;

// A bar over 1875 batches with a clock that the test sets.
class ProgressBarTest : public ::testing::Test {
 protected:
  void open(const ConsoleOptions& options, const BarPosition& begin = {},
            ProgressBars shows = ProgressBars::kPasses) {
    ConsoleOptions with_stream = options;
    with_stream.stream = stream_.file();
    console_.emplace(with_stream);
    bar_.emplace(*console_, ProgressBarOptions{.epoch = 1,
                                               .num_epochs = 8,
                                               .loader = "train",
                                               .num_batches = 1875,
                                               .begin = begin,
                                               .clock = [this] { return now_; },
                                               .shows = shows});
  }
  void open_terminal() { open({.terminal = true, .width = 200, .utf8 = true}); }

  std::string shown() const { return screen(stream_.flushed()); }

  CapturedStream stream_;
  TimePoint now_ = TimePoint(1000s);
  std::optional<Console> console_;
  std::optional<ProgressBar> bar_;
};

TEST_F(ProgressBarTest, OneLineOnATerminal) {
  open_terminal();
  EXPECT_EQ(shown(), "1/8 * Epoch (train):   0% |          | 0/1875 [00:00<?, ? samples/s]");
  now_ += 4s;
  bar_->update({.batches = 844, .samples = 32492}, {{"loss", 0.534}, {"accuracy01", 0.812}});
  EXPECT_EQ(shown(),
            "1/8 * Epoch (train):  45% |████▌     | 844/1875 [00:04<00:04, 8,123 samples/s] "
            "loss=0.534, accuracy01=0.812");
}

TEST_F(ProgressBarTest, PlainSignsWithoutUtf8) {
  open({.terminal = true, .width = 200, .utf8 = false});
  now_ += 4s;
  bar_->update({.batches = 844, .samples = 32492}, {});
  EXPECT_THAT(shown(), HasSubstr(" 45% |####      | 844/1875"));
}

TEST_F(ProgressBarTest, NeverWiderThanTheTerminal) {
  open({.terminal = true, .width = 40, .utf8 = true});
  now_ += 4s;
  bar_->update({.batches = 844, .samples = 32492}, {{"loss", 0.534}});
  EXPECT_EQ(shown(), "1/8 * Epoch (train):  45% |████▌     | ");
}

TEST_F(ProgressBarTest, DrawnAtMostTenTimesASecond) {
  open_terminal();
  const std::string first = stream_.flushed();
  now_ += 99ms;
  EXPECT_FALSE(bar_->due());
  bar_->update({.batches = 1, .samples = 32}, {});
  EXPECT_EQ(stream_.flushed(), first);
  now_ += 1ms;
  EXPECT_TRUE(bar_->due());
  bar_->update({.batches = 2, .samples = 64}, {});
  EXPECT_THAT(shown(), HasSubstr("2/1875"));
}

TEST_F(ProgressBarTest, AFinishedBarStaysAsALine) {
  open_terminal();
  now_ += 10s;
  bar_->finish({.batches = 1875, .samples = 60000}, {{"loss", 0.5}});
  console_->line("train (1/8) loss: 0.500");
  EXPECT_EQ(shown(),
            "1/8 * Epoch (train): 100% |██████████| 1875/1875 [00:10<00:00, 6,000 samples/s] "
            "loss=0.500\ntrain (1/8) loss: 0.500\n");
}

TEST_F(ProgressBarTest, AFinishedBarIsCutToo) {
  open({.terminal = true, .width = 40, .utf8 = true});
  now_ += 10s;
  bar_->finish({.batches = 1875, .samples = 60000}, {{"loss", 0.5}});
  EXPECT_EQ(shown(), "1/8 * Epoch (train): 100% |██████████| \n");
}

TEST_F(ProgressBarTest, AnAbandonedBarIsTakenAway) {
  open_terminal();
  bar_.reset();
  EXPECT_EQ(shown(), "");
}

TEST_F(ProgressBarTest, WarningsArePrintedAboveItAndElsewhereAfterwards) {
  std::string warned;
  const auto before = set_warning_handler([&](const std::string& message) {
    warned += message + ";";
    std::fprintf(stream_.file(), "%s\n", message.c_str());
  });
  open_terminal();
  warn("slow disk");
  EXPECT_THAT(shown(), StartsWith("slow disk\n1/8 * Epoch (train):"));
  bar_.reset();
  warn("later");
  EXPECT_EQ(warned, "slow disk;later;");
  set_warning_handler(before);
}

// Rank 0 of forked workers has such a handler (engine/distributed.cpp).
TEST_F(ProgressBarTest, AHandlerThatInterruptsTheSameConsoleIsNotStuck) {
  const auto before = set_warning_handler([&](const std::string& message) {
    console_->interrupt([&] { std::fprintf(stream_.file(), "%s\n", message.c_str()); });
  });
  open_terminal();
  warn("the loss is nan");
  EXPECT_THAT(shown(), StartsWith("the loss is nan\n1/8 * Epoch (train):"));
  bar_.reset();
  EXPECT_EQ(shown(), "the loss is nan\n");
  set_warning_handler(before);
}

TEST_F(ProgressBarTest, PlainLinesElsewhereEveryTenSeconds) {
  open({.terminal = false});
  now_ += 9s;
  bar_->update({.batches = 700, .samples = 22400}, {});
  EXPECT_EQ(shown(), "");
  now_ += 1s;
  bar_->update({.batches = 750, .samples = 24000}, {{"loss", 0.534}});
  const std::string line =
      "1/8 * Epoch (train): 750/1875 batches, 2,400 samples/s, 15.0 s left, loss=0.534\n";
  EXPECT_EQ(shown(), line);
  now_ += 9s;
  bar_->update({.batches = 1500, .samples = 48000}, {});
  bar_->finish({.batches = 1875, .samples = 60000}, {});
  EXPECT_EQ(stream_.flushed(), line);
}

TEST_F(ProgressBarTest, AfterAResumeThePaceIsThatOfTheBatchesDoneNow) {
  open({.terminal = true, .width = 200, .utf8 = true}, {.batches = 875, .samples = 28000});
  EXPECT_THAT(shown(), HasSubstr(" 46% "));
  now_ += 10s;
  bar_->update({.batches = 1375, .samples = 44000}, {});
  EXPECT_THAT(shown(), HasSubstr("1375/1875 [00:10<00:10, 1,600 samples/s]"));
}

TEST_F(ProgressBarTest, AnUpdateThatDrawsNothingCostsALookAtTheClock) {
  CapturedStream stream;
  Console console({.stream = stream.file(), .terminal = false});
  ProgressBar bar(console, {.loader = "train", .num_batches = 1});
  const Metrics metrics = {{"accuracy01", 0.8}, {"loss", 0.5}};
  constexpr int kUpdates = 200'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kUpdates; ++i) bar.update({.batches = i, .samples = i}, metrics);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  RecordProperty("nanoseconds", std::to_string(taken.count() / kUpdates));
  // It takes about 50 ns. The limit is larger, for sanitizers and busy machines, but too small for
  // formatting a line.
  EXPECT_LT(taken.count() / kUpdates, 1000);
}

TEST_F(ProgressBarTest, OfARunCountsEpochs) {
  open({.terminal = true, .width = 200, .utf8 = true}, {.batches = 375}, ProgressBars::kRun);
  now_ += 10s;
  // One and a half of the remaining 1500 epochs in ten seconds.
  bar_->update({.batches = 376, .samples = 1000, .part = 0.5}, {{"loss", 0.5}});
  EXPECT_EQ(shown(),
            "Run:  20% |██        | 376/1875 epochs [00:10<2:46:30, 100 samples/s] loss=0.500");
}

TEST_F(ProgressBarTest, OfARunPrintsPlainLinesElsewhere) {
  open({.terminal = false}, {}, ProgressBars::kRun);
  now_ += 10s;
  bar_->update({.batches = 375, .samples = 1000}, {});
  EXPECT_EQ(shown(), "Run: 375/1875 epochs, 100 samples/s, 40.0 s left\n");
}

}  // namespace
}  // namespace lockstep
