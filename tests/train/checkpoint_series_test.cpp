// What a series writes in a run is in tests/callback/checkpoint_test.cpp.
#include "lockstep/train/checkpoint_series.h"

#include <chrono>
#include <csignal>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/train/checkpointer.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

State state_with_loss() {
  State state;
  state.loaders = toy::loaders();
  state.known_metrics = {"loss", "mine"};
  state.better = [](std::string_view metric) {
    return metric == "loss" ? std::optional(Better::kSmaller) : std::nullopt;
  };
  return state;
}

TEST(CheckCheckpoints, NeedAFolderAndAMetricWithADirection) {
  State state = state_with_loss();
  EXPECT_THAT(toy::error_of([&] { check_checkpoints({}, state); }), HasSubstr("logdir"));
  state.logdir = "run";
  EXPECT_EQ(toy::error_of([&] { check_checkpoints({}, state); }), "");
  const auto by = [](const char* metric) {
    return CheckpointOptions{.metric = MetricKey{"valid", metric}};
  };
  EXPECT_EQ(toy::error_of([&] { check_checkpoints(by("loss"), state); }), "");
  EXPECT_THAT(toy::error_of([&] { check_checkpoints(by("los"), state); }), HasSubstr("'loss'"));
  EXPECT_THAT(toy::error_of([&] { check_checkpoints(by("mine"), state); }),
              HasSubstr("its minimize"));
}

TEST(CheckCheckpoints, RefuseWhatMakesNoSense) {
  EXPECT_THROW(check_checkpoints({.save_n_best = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_batches = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_batches = 1, .mode = CheckpointMode::kModel}),
               ConfigError);
  EXPECT_NO_THROW(check_checkpoints({.save_every_batches = 1}));
  EXPECT_THROW(check_checkpoints({.min_delta = -0.1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_epochs = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.save_every_steps = -1}), ConfigError);
  EXPECT_THROW(check_checkpoints({.filename = "model"}), ConfigError);
  EXPECT_THROW(check_checkpoints({.keep_all = true, .save_every_steps = 2, .filename = "m{epoch}"}),
               ConfigError);
  EXPECT_NO_THROW(
      check_checkpoints({.keep_all = true, .save_every_steps = 2, .filename = "m{step}"}));
  EXPECT_NO_THROW(
      check_checkpoints({.keep_all = true, .save_every_steps = 2, .mode = CheckpointMode::kModel}));
}

TEST(CheckCheckpoints, KnowTheLoadersAndMetricsOfAFileName) {
  State state = state_with_loss();
  state.logdir = "run";
  const auto refusal = [&](const char* name) {
    return toy::error_of([&] { check_checkpoints({.filename = name}, state); });
  };
  EXPECT_EQ(refusal("m.{epoch:02d}-{valid_loss:.2f}-{score}"), "");
  EXPECT_THAT(refusal("m.{epoch}-{val_loss}"),
              HasSubstr("filename: {val_loss}: expected epoch, step, score, or a loader"));
  EXPECT_THAT(refusal("m.{epoch}-{valid_los}"), HasSubstr("'loss'"));
  EXPECT_THAT(toy::error_of([&] { check_checkpoints({.min_delta = 0.1}, state); }),
              HasSubstr("min_delta: expected a metric"));
  state.logdir.reset();
  EXPECT_EQ(toy::error_of([&] { check_checkpoints({.mode = CheckpointMode::kNone}, state); }), "");
}

// A callback of the user's opens its own series and decides when it saves.
TEST(CheckpointSeries, IsOpenToOtherCallbacks) {
  const TemporaryDirectory folder;
  struct Every : Callback {
    explicit Every(std::filesystem::path folder) : folder(std::move(folder)) {}
    void on_run_start(State& state) override {
      series = &state.checkpointer->open({.folder = folder, .save_n_best = 5}, std::nullopt);
    }
    void on_epoch_end(State& state) override {
      if (state.progress.epoch != 2) series->after_epoch();
    }
    std::filesystem::path folder;
    CheckpointSeries* series = nullptr;
  };
  TrainOptions options = toy::options();
  options.callbacks = {Every(folder / "mine")};
  const auto result = toy::train(options);
  EXPECT_TRUE(std::filesystem::exists(folder / "mine/epoch.0001.pth"));
  EXPECT_FALSE(std::filesystem::exists(folder / "mine/epoch.0002.pth"));
  EXPECT_EQ(*result.last_checkpoint, folder / "mine/last.pth");
}

std::int64_t epoch_in(const std::filesystem::path& file) {
  return checkpoint::load(file).get<StateDict>("run").get<std::int64_t>("epoch");
}

// "train 4": the place inside an epoch at which a file was saved; "end": after the epoch.
std::string place_in(const std::filesystem::path& file) {
  const auto run = checkpoint::load(file).get<StateDict>("run");
  const auto loader = run.get<std::string>("loader");
  return loader.empty()
             ? "end"
             : fmt::format("{} {}", loader, run.get<std::int64_t>("loader_batches_done"));
}

TEST(CheckpointSeries, OnCheckpointSeesTheFileAndTheMomentOfTheSave) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  std::vector<std::string> places;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->checkpoint = [&](State& s) {
    places.push_back(place_in(*s.last_checkpoint));
    EXPECT_EQ(s.inside_epoch, places.back() != "end");
    EXPECT_EQ(epoch_in(*s.last_checkpoint), s.progress.epoch - (s.inside_epoch ? 1 : 0));
    EXPECT_EQ(s.epoch_metrics.contains("valid"), !s.inside_epoch);
    EXPECT_FALSE(s.can_snapshot);
    EXPECT_EQ(s.best_checkpoint.has_value(), s.progress.epoch > 1 || !s.inside_epoch);
  };
  std::vector<std::int64_t> epochs;
  hooks->epoch_end = [&](State& s) { epochs.push_back(s.progress.epoch); };
  std::size_t before_end = 0;
  hooks->run_end = [&](State&) { before_end = places.size(); };
  // An epoch has seven batches of train and three of valid.
  options.callbacks = {hooks,
                       CheckpointCallback({.folder = folder.path(), .save_every_batches = 5})};
  toy::train(options);
  EXPECT_THAT(places, testing::ElementsAre("train 5", "valid 3", "end", "train 5", "valid 3", "end",
                                           "train 5", "valid 3", "end"));
  EXPECT_EQ(before_end, places.size()) << "everything is reported before on_run_end";
  EXPECT_THAT(epochs, testing::ElementsAre(1, 2, 3)) << "the run's own progress is not changed";
}

// Between a resume and the next save there are as many batches as there would be without it.
TEST(CheckpointSeries, AResumedRunSavesAtTheSameBatches) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, std::optional<std::string> resume, bool fails) {
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    options.resume = std::move(resume);
    std::vector<std::string> places;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->checkpoint = [&](State& s) {
      if (s.last_checkpoint->parent_path().filename() == "four") {
        places.push_back(place_in(*s.last_checkpoint));
      }
    };
    hooks->batch_start = [=](State& s) {
      if (fails && s.loader_batch == 7) throw Error("power cut");
    };
    options.callbacks = {
        hooks, CheckpointCallback({.folder = folder / name / "four", .save_every_batches = 4}),
        CheckpointCallback({.folder = folder / name / "three", .save_every_batches = 3})};
    EXPECT_EQ(toy::error_of([&] { toy::train(options); }).empty(), !fails);
    return places;
  };
  EXPECT_THAT(run("whole", std::nullopt, false), testing::ElementsAre("train 4", "valid 1", "end"));
  EXPECT_THAT(run("cut", std::nullopt, true), testing::ElementsAre("train 4"));
  const auto last = folder / "cut/three/last.pth";
  ASSERT_EQ(place_in(last), "train 6");
  EXPECT_THAT(run("cut", last.string(), false), testing::ElementsAre("valid 1", "end"));
}

// A run in whose second epoch `breaks` is called.
std::string error_of_run(const std::filesystem::path& folder, const std::function<void()>& breaks) {
  TrainOptions options = toy::options();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_start = [&](State& s) {
    s.checkpointer->finish_writing();
    if (s.progress.epoch == 2) breaks();
  };
  options.callbacks = {hooks, CheckpointCallback({.folder = folder, .save_every_batches = 2})};
  return toy::error_of([&] { toy::train(options); });
}

TEST(CheckpointSeries, AFolderThatIsGoneEndsTheRunWithItsName) {
  const TemporaryDirectory folder;
  const auto error = error_of_run(folder / "mine", [&] {
    std::filesystem::rename(folder / "mine", folder / "other");
    write_file_atomically(folder / "mine", std::string_view("no folder"));
  });
  EXPECT_THAT(error, HasSubstr((folder / "mine/last.pth").string()));
  EXPECT_EQ(epoch_in(folder / "other/last.pth"), 1);
}

TEST(CheckpointSeries, AFullDiskEndsTheRunAndLeavesTheFileOfBefore) {
  const TemporaryDirectory folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const auto error = error_of_run(folder / "mine", [&] {
    const rlimit tight{.rlim_cur = 1000, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, testing::AllOf(HasSubstr((folder / "mine/last.pth").string()),
                                    HasSubstr("File too large")));
  EXPECT_EQ(epoch_in(folder / "mine/last.pth"), 1);
}

// Errors of the last file are found, too, although no batch follows it.
TEST(CheckpointSeries, AnErrorOfTheLastFileEndsTheRun) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_end = [&](State&) {
    std::filesystem::rename(folder / "mine", folder / "other");
    write_file_atomically(folder / "mine", std::string_view("no folder"));
  };
  options.callbacks = {hooks, CheckpointCallback({.folder = folder / "mine"})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr((folder / "mine/epoch.0001.pth").string()));
}

// A run that fails for another reason still finishes the file that it was writing, and says so.
TEST(CheckpointSeries, AFailedRunFinishesItsFile) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  std::vector<std::string> calls;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->checkpoint = [&](State& s) { calls.push_back(place_in(*s.last_checkpoint)); };
  hooks->exception = [&](State&) { calls.push_back("exception"); };
  hooks->batch_start = [](State& s) {
    if (s.loader_batch == 6) throw Error("a mistake");
  };
  options.callbacks = {hooks,
                       CheckpointCallback({.folder = folder.path(), .save_every_batches = 5})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("a mistake"));
  EXPECT_THAT(calls, testing::ElementsAre("train 5", "exception"));
}

// A model whose checkpoints take a while to write.
TrainOptions large_options(std::int64_t width) {
  TrainOptions options;
  torch::manual_seed(1);
  options.model = torch::nn::Linear(width, width);
  options.criterion = torch::nn::MSELoss();
  options.optimizer = optim::Adam{.lr = 1e-3};
  const auto features = torch::randn({16, width});
  options.loaders = {
      {"train", {std::make_shared<data::TensorDataset>(features, features), {.batch_size = 2}}}};
  options.console = false;
  options.num_epochs = 1;
  return options;
}

TEST(CheckpointSeries, AKillWhileWritingLeavesWholeFilesOnly) {
  const TemporaryDirectory folder;
  std::map<std::string, int> found;
  for (int round = 0; round < 6; ++round) {
    const auto at = folder / std::to_string(round);
    const pid_t child = fork_with_autograd();
    ASSERT_GE(child, 0);
    if (child == 0) {
      torch::set_num_threads(1);
      TrainOptions options = large_options(1024);
      auto hooks = std::make_shared<toy::Hooks>();
      // The file of batch 3 is begun after batch_start of 3. The children die at various moments
      // of it.
      hooks->batch_start = [&](State& s) {
        if (s.loader_batch != 4) return;
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(8 * round);
        while (std::chrono::steady_clock::now() < until) continue;
        ::raise(SIGKILL);
      };
      options.callbacks = {hooks, CheckpointCallback({.folder = at, .save_every_batches = 1})};
      toy::error_of([&] { toy::train(options); });
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    ++found[place_in(at / "last.pth")];
  }
  for (const auto& [place, count] : found) {
    EXPECT_THAT(place, testing::AnyOf("train 2", "train 3"));
  }
}

// A save stalls training for the time of a copy. The shortest of several times counts, because
// other programs may run on the machine; `lockstep_bench --work saves` has the figures.
TEST(CheckpointSeries, ASaveTakesNotMuchLongerThanMemcpy) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [](const auto& action) {
    const auto start = Clock::now();
    action();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  TrainOptions options = large_options(2048);  // 3 x 16 MiB
  const std::vector<char> from(3 * (16 << 20), 1);
  std::vector<char> to(from.size(), 2);
  double copy = 1e9, snapshot = 1e9;
  StateDict before;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [&](State& s) {
    StateDict now;
    const double seconds = seconds_of([&] { now = s.checkpointer->snapshot(&before); });
    if (s.loader_batch > 1) snapshot = std::min(snapshot, seconds);
    before = std::move(now);
    copy = std::min(copy, seconds_of([&] { std::copy(from.begin(), from.end(), to.begin()); }));
  };
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_LT(snapshot / copy, 2) << "snapshot " << snapshot << " s, memcpy " << copy << " s";
}

}  // namespace
}  // namespace lockstep
