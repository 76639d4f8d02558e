#include "lockstep/train/checkpointer.h"

#include <cstdint>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"
#include "tests/support/slowdown.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A line of /proc/self/status, in bytes: VmRSS is the memory in use, VmHWM its peak.
std::uint64_t memory_now(const std::string& line) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == line + ":" && file >> kilobytes) return kilobytes << 10;
  }
  throw Error("/proc/self/status has no line {}", line);
}

// With Adam, a run needs its weights, gradients and two moments: 4/3 of its checkpoint. While it
// reads the file, the gradients are not in use yet, and the moments are loaded where they stay.
TEST(Checkpointer, AResumeNeedsAboutTwiceTheSizeOfItsFile) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need memory for themselves";
  }
  constexpr std::int64_t kSide = 3000;  // 36 MB, so that freed memory goes back to the system
  const TemporaryDirectory folder;
  const auto run = [&](std::int64_t num_epochs) {
    TrainOptions options = toy::options();
    options.model = torch::nn::Sequential(torch::nn::Linear(4, kSide), torch::nn::ReLU(),
                                          torch::nn::Linear(kSide, kSide), torch::nn::ReLU(),
                                          torch::nn::Linear(kSide, 3));
    options.loaders = {{"train", {toy::points(16), {.batch_size = 8}}}};
    options.valid_loader.reset();
    options.logdir = folder / "run";
    options.num_epochs = num_epochs;
    return options;
  };
  toy::train(run(1));
  const std::uint64_t file = std::filesystem::file_size(folder / "run/checkpoints/last.pth");
  const std::uint64_t before = memory_now("VmRSS");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  if (memory_now("VmHWM") > before + file / 10) {
    GTEST_SKIP() << "the peak of the memory cannot be reset here";
  }
  TrainOptions options = run(2);
  options.resume = "last";
  std::uint64_t peak = 0;
  const auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_start = [&](State&) { peak = memory_now("VmHWM"); };
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_LT(static_cast<double>(peak - before), 2.2 * static_cast<double>(file));
}

TEST(Checkpointer, ASnapshotOfAFinishedEpochIsWhatACheckpointHolds) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.documents = {{"config", "a: 1"}};
  auto hooks = std::make_shared<toy::Hooks>();
  std::string seen;
  hooks->epoch_end = [&](State& s) {
    seen = content_hash(s.checkpointer->snapshot().get<StateDict>("model_state_dict"));
  };
  options.callbacks = {hooks};
  const StateDict saved = checkpoint::load(*toy::train(options).last_checkpoint);
  EXPECT_EQ(content_hash(saved.get<StateDict>("model_state_dict")), seen);
  EXPECT_EQ(saved.get<StateDict>("documents").get<std::string>("config"), "a: 1");
}

TEST(Checkpointer, ASnapshotWhereTheRunCouldNotGoOnIsRefused) {
  TrainOptions options = toy::options();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->forward = [](State& s) { s.checkpointer->snapshot(); };
  options.callbacks = {hooks};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("can_snapshot"));
}

// The scheduler changes the learning rate as soon as it is made.
TEST(Checkpointer, KeepsTheLearningRateOfTheOptimizersOptions) {
  TrainOptions options = toy::options();
  options.optimizer = optim::SGD{.lr = 0.25, .momentum = 0.9};
  options.scheduler = optim::OneCycleLR{.max_lr = 1};
  double initial = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_start = [&](State& s) { initial = s.checkpointer->initial_lr(); };
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_EQ(initial, 0.25);
}

TEST(Checkpointer, AnEpochWithoutANumberIsNeverTheBest) {
  TrainOptions options = toy::options();
  options.load_best_on_end = true;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [](State& s) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (s.loader == "valid") {
      s.loader_metrics["loss"] = std::vector{nan, 0.5, nan}[s.progress.epoch - 1];
    }
  };
  options.callbacks = {hooks};
  EXPECT_EQ(toy::train(options).best_epoch, 2);
}

TEST(Checkpointer, WithoutAnyScoreTheModelStaysAsItIs) {
  TrainOptions options = toy::options();
  options.load_best_on_end = true;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [](State& s) {
    s.loader_metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  };
  options.callbacks = {hooks};
  toy::Warnings warnings;
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch, 0);
  EXPECT_EQ(weights_hash(result.model.weights()), result.weights_hash);
  EXPECT_THAT(warnings.texts, testing::ElementsAre(HasSubstr("no epoch has a score")));
}

}  // namespace
}  // namespace lockstep
