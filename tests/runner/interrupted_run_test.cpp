#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/runner/runner.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

// Ctrl-C in a real run, in a separate process. The process ends by the signal, last.pth is of the
// batch in which it was interrupted, and the resumed run ends with the bits of an uninterrupted
// one.
class InterruptAt : public testing::TestWithParam<std::int64_t> {
 protected:
  TrainOptions toy_options() const {
    TrainOptions options = toy::options();
    options.accumulation_steps = GetParam();
    return options;
  }
};

TEST_P(InterruptAt, CtrlCLeavesACheckpointToGoOnFrom) {
  TemporaryDirectory folder;
  // One thread, as in the child, where OpenMP has no other threads: their number may change bits.
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  const auto straight = toy::train(toy_options());
  const pid_t child = fork_with_autograd();
  ASSERT_GE(child, 0);
  if (child == 0) {
    TrainOptions options = toy_options();
    options.logdir = folder / "run";
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [](State& s) {
      if (s.progress.epoch == 2 && s.loader_batch == 2) std::raise(SIGINT);
    };
    options.callbacks = {hooks};
    try {
      toy::train(options);
    } catch (...) {
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGINT);
  TrainOptions options = toy_options();
  options.logdir = folder / "run";
  options.resume = "last";
  auto hooks = std::make_shared<toy::Hooks>();
  std::int64_t first_batch = 0;
  hooks->batch_start = [&](State& s) {
    if (first_batch == 0) first_batch = s.loader_batch;
  };
  options.callbacks = {hooks};
  EXPECT_EQ(toy::train(options).weights_hash, straight.weights_hash);
  // While the gradients of two batches wait for a third batch, the signal waits for it, too.
  EXPECT_EQ(first_batch, GetParam() == 1 ? 3 : 4);
  torch::set_num_threads(threads);
}

// A signal at any time leaves no lock, also when it comes too late to interrupt the run.
TEST(Interrupt, LeavesNoLock) {
  for (const bool restarts : {false, true}) {
    for (const bool at_the_end : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", restarts ? "with restarts" : "without restarts",
                               at_the_end ? "at the end" : "in a batch"));
      const TemporaryDirectory folder;
      const pid_t child = start_process([&] {
        TrainOptions options = toy::options();
        options.logdir = folder / "run";
        options.ddp = true;
        options.workers = 2;
        options.max_restarts = restarts ? 2 : 0;
        auto hooks = std::make_shared<toy::Hooks>();
        const auto interrupt = [](State& s) {
          if (s.comm->is_primary()) ::kill(::getpid(), SIGINT);
        };
        (at_the_end ? hooks->run_end : hooks->loader_end) = interrupt;
        options.callbacks = {hooks};
        toy::train(options);
        return 0;
      });
      ASSERT_GE(child, 0);
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
      EXPECT_EQ(WTERMSIG(status), SIGINT);
      EXPECT_TRUE(std::filesystem::exists(folder / "run/logs"));
      EXPECT_EQ(std::filesystem::exists(folder / "run/summary.json"), at_the_end);
      EXPECT_FALSE(std::filesystem::exists(folder / "run/.lock"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Accumulation, InterruptAt, testing::Values(1, 3));

}  // namespace
}  // namespace lockstep
