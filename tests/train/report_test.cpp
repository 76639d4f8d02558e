#include "lockstep/train/report.h"

#include <csignal>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

struct ReportTest : testing::Test {
  ReportTest() {
    state.engine = std::make_shared<DeviceEngine>();
    state.progress.epoch = 4;
    result.epochs = 4;
    options.logdir = folder.path();
    result.weights_hash = "0123456789abcdef";
  }

  std::string report() {
    testing::internal::CaptureStdout();
    report_run(result, state, options, {});
    return testing::internal::GetCapturedStdout();
  }

  nlohmann::json summary() const {
    return nlohmann::json::parse(read_file(folder / "summary.json"));
  }

  TemporaryDirectory folder;
  State state;
  TrainOptions options;
  TrainResult result;
};

TEST_F(ReportTest, SaysWhereEverythingIs) {
  state.selection.key = MetricKey{"valid", "loss"};
  result.best_epoch = 2;
  result.best_metric = 0.25;
  result.best_checkpoint = "x/best.pth";
  result.stop_reason = "enough";
  const std::string text = report();
  for (const char* part : {"Best epoch: 2 (valid loss: 0.250)", "Trained 4 epochs",
                           "weights 0123456789abcdef", "x/best.pth", "Stopped: enough"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(summary()["best"]["epoch"], 2);
}

TEST_F(ReportTest, AResumedRunSaysWhatItDidItself) {
  result.epochs = 1;
  EXPECT_THAT(report(), HasSubstr("Trained 1 epoch (4 altogether) in"));
  result.epochs = 0;
  EXPECT_THAT(report(), HasSubstr("All 4 epochs were done before, weights"));
}

TEST_F(ReportTest, WithoutABestThereIsNone) {
  state.selection.key = MetricKey{"valid", "loss"};
  result.best_metric = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(report(), testing::Not(HasSubstr("Best epoch")));
  EXPECT_TRUE(summary()["best"].is_null());
}

// Two ranks of which this is the first.
class OfTwo final : public comm::Communicator {
 public:
  OfTwo() : Communicator({.rank = 0, .world_size = 2, .local_rank = 0, .local_size = 2}) {}
  std::optional<torch::Tensor> shared_memory(std::size_t) override { return std::nullopt; }
  std::string name() const override { return "two"; }

 protected:
  void do_abort(std::string_view, process::FailureKind) noexcept override {}
  void do_barrier() override {}
  std::vector<std::uint64_t> do_vote(std::uint64_t word) override { return {word, word}; }
  std::vector<std::uint64_t> do_announce(std::uint64_t tag) override { return {tag, tag}; }
  void do_broadcast(std::byte*, const comm::Elements&, int) override {}
  std::vector<std::string> do_gather(std::string_view mine, std::optional<int>) override {
    return {std::string(mine), std::string(mine)};
  }
  void do_reduce(const Reduction&, std::span<std::byte* const>) override {}
};

TEST_F(ReportTest, TheNumberOfWorkersIsThatOfTheEnd) {
  report();
  EXPECT_EQ(summary()["workers"], 1);
  OfTwo two;
  state.comm = &two;
  report();
  EXPECT_EQ(summary()["workers"], 2) << "whatever the engine was asked for";
}

class InterruptionTest : public ReportTest {
 protected:
  InterruptionTest() {
    state.exception = std::make_exception_ptr(Interrupted(SIGINT));
    state.loader = "train";
    state.loader_batch = 3;
    state.loader_batches = 9;
    state.can_snapshot = true;
    state.inside_epoch = true;
  }

  std::string said() {
    testing::internal::CaptureStdout();
    report_interruption(state, options);
    return testing::internal::GetCapturedStdout();
  }
};

TEST_F(InterruptionTest, SaysWhatWasSavedAndHowToGoOn) {
  state.last_checkpoint = folder / "checkpoints/last.pth";
  state.last_is_resumable = true;
  EXPECT_EQ(said(),
            "Interrupted by Ctrl-C in epoch 4, batch 3 of 9 of 'train'; the last checkpoint "
            "is " +
                state.last_checkpoint->string() + "\n" +
                "To go on from there: --resume last, or .resume = \"last\" in C++ (a config with "
                "stages: --autoresume last)\n");
  state.last_checkpoint = folder / "elsewhere/last.pth";
  EXPECT_THAT(said(), HasSubstr("--resume " + state.last_checkpoint->string() + ","));
  options.console = false;
  EXPECT_EQ(said(), "");
}

TEST_F(InterruptionTest, PromisesNothingThatCannotBe) {
  EXPECT_THAT(said(), HasSubstr("nothing was saved, as no epoch was finished"));
  options.logdir.reset();
  EXPECT_THAT(said(), HasSubstr("nothing was saved, as there is no logdir"));
  state.last_checkpoint = "weights/last.pth";  // only weights
  EXPECT_THAT(said(), testing::Not(HasSubstr("To go on")));
}

TEST_F(ReportTest, IsSilentWhenToldTo) {
  options.console = false;
  EXPECT_EQ(report(), "");
  EXPECT_EQ(summary()["last"]["epoch"], 4);
}

}  // namespace
}  // namespace lockstep
