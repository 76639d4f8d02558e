// Runs that lose workers, and go on: real processes that are really killed, on a small problem.
// Each run must end as the undisturbed run does, to the bit.
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/freeze.h"
#include "lockstep/callback/lambda.h"
#include "lockstep/callback/lr_finder.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/weights_file.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/process/memory_file.h"
#include "lockstep/train/interruption.h"
#include "tests/log/event_reader.h"
#include "tests/support/launched_run.h"
#include "tests/support/slowdown.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
namespace fs = std::filesystem;

struct Restarting {
  int workers = 2;
  std::string backend = "auto";
  int max_restarts = 0;
  bool share_updates = true;
  std::chrono::milliseconds timeout = 60s;
};

TrainOptions restarting(const Restarting& setup) {
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3}), AUCCallback({.num_classes = 3})};
  options.max_restarts = setup.max_restarts;
  options.engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = setup.workers,
                                     .shards = 4,
                                     .backend = setup.backend,
                                     .share_updates = setup.share_updates,
                                     .timeout = setup.timeout});
  return options;
}

// A fault that happens once, in one attempt, at one place of the run.
struct Fault {
  int rank = 1;
  int restart = 0;  // in which attempt
  std::int64_t epoch = 1;
  std::string loader = "train";
  std::int64_t batch = 1;  // 0: at any
  std::function<void()> strike = [] { ::raise(SIGKILL); };

  void operator()(const State& state) const {
    if (state.comm->rank() != rank || state.restarts != restart) return;
    if (state.progress.epoch != epoch || state.loader != loader) return;
    if (batch == 0 || state.loader_batch == batch) strike();
  }
};

CallbackPtr at_step(const Fault& fault) {
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = fault;
  return hooks;
}

std::map<std::string, std::string> csv_files(const fs::path& logdir) {
  std::map<std::string, std::string> files;
  const fs::path folder = logdir / "logs";
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().lexically_relative(folder)] = read_file(entry.path());
  }
  return files;
}

// The scalars that TensorBoard shows, as sorted lines.
std::vector<std::string> scalars_in(const fs::path& logdir) {
  std::vector<std::string> scalars;
  for (const auto& folder : fs::directory_iterator(logdir / "tensorboard")) {
    if (!folder.is_directory()) continue;
    for (const auto& point : reader::points(folder.path(), reader::TornEnd::kSkip)) {
      scalars.push_back(fmt::format("{} {} {} {}", folder.path().filename().string(), point.tag,
                                    point.step, point.value));
    }
  }
  std::ranges::sort(scalars);
  return scalars;
}

std::vector<nlohmann::json> recoveries_in(const fs::path& logdir) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(logdir / "recoveries.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

void expect_equal(const TrainResult& found, const TrainResult& expected) {
  EXPECT_EQ(found.weights_hash, expected.weights_hash);
  EXPECT_EQ(found.history, expected.history) << "every metric of every epoch, to the bit";
  EXPECT_EQ(found.epochs, expected.epochs);
  EXPECT_EQ(found.steps, expected.steps);
  EXPECT_EQ(found.best_epoch, expected.best_epoch);
}

// At every hook, in the first and the last batch of train and valid loaders.
TEST(Recovery, AWorkerThatIsKilledAnywhereChangesNothing) {
  const TrainResult expected = toy::train(restarting({}));
  using Slot = std::function<void(State&)> toy::Hooks::*;
  const std::map<std::string, Slot> slots = {{"run_start", &toy::Hooks::run_start},
                                             {"epoch_start", &toy::Hooks::epoch_start},
                                             {"loader_start", &toy::Hooks::loader_start},
                                             {"batch_start", &toy::Hooks::batch_start},
                                             {"forward", &toy::Hooks::forward},
                                             {"backward", &toy::Hooks::backward},
                                             {"batch_end", &toy::Hooks::batch_end},
                                             {"step", &toy::Hooks::step},
                                             {"loader_end", &toy::Hooks::loader_end},
                                             {"epoch_end", &toy::Hooks::epoch_end},
                                             {"run_end", &toy::Hooks::run_end}};
  for (const auto& [name, slot] : slots) {
    const bool in_batches = name == "batch_start" || name == "forward" || name == "backward" ||
                            name == "batch_end" || name == "step";
    for (const std::int64_t epoch : {1, 2, 3}) {
      for (const std::string loader : {"train", "valid"}) {
        if (name == "backward" && loader == "valid") continue;
        if ((name == "run_start" || name == "run_end") && (epoch > 1 || loader == "valid"))
          continue;
        SCOPED_TRACE(fmt::format("killed in {}, epoch {}, {}", name, epoch, loader));
        auto hooks = std::make_shared<toy::Hooks>();
        // There are two train batches and one valid batch in an epoch.
        const std::int64_t batch = loader == "train" ? epoch % 2 + 1 : 1;
        const Fault fault{.epoch = epoch, .loader = loader, .batch = batch};
        hooks.get()->*slot = [&, is_whole = !in_batches](State& state) {
          if (!is_whole) return fault(state);
          const bool is_there =
              name == "run_start" || name == "run_end" || state.progress.epoch == epoch;
          if (state.comm->rank() == 1 && state.restarts == 0 && is_there) ::raise(SIGKILL);
        };
        TrainOptions options = restarting({.max_restarts = 1});
        options.callbacks.add(hooks);
        const TrainResult found = toy::train(options);
        expect_equal(found, expected);
        EXPECT_EQ(found.recoveries, name == "run_end" ? 0 : 1) << "then everything is trained";
      }
    }
  }
}

TEST(Recovery, OverEveryTransportAndForAnyNumberOfWorkers) {
  const TrainResult expected = toy::train(restarting({.workers = 1}));
  for (const Restarting& setup :
       {Restarting{.workers = 2, .backend = "gloo"}, Restarting{.workers = 3},
        Restarting{.workers = 4}, Restarting{.workers = 3, .backend = "gloo"},
        Restarting{.workers = 2, .share_updates = false}}) {
    SCOPED_TRACE(fmt::format("{} workers over {}", setup.workers, setup.backend));
    Restarting often = setup;
    often.max_restarts = 3;
    TrainOptions options = restarting(often);
    options.callbacks.add(at_step({.rank = 1, .restart = 0, .epoch = 1, .batch = 2}));
    options.callbacks.add(
        at_step({.rank = setup.workers - 1, .restart = 1, .epoch = 2, .batch = 1}));
    options.callbacks.add(
        at_step({.rank = 1, .restart = 2, .epoch = 3, .loader = "valid", .batch = 1}));
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 3);
  }
}

TEST(Recovery, LogsHaveEveryRowOnceAndTheFolderSaysWhatHappened) {
  const TemporaryDirectory calm, disturbed;
  TrainOptions options = restarting({});
  options.logdir = calm.path();
  toy::train(options);

  options = restarting({.max_restarts = 4});
  options.logdir = disturbed.path();
  options.callbacks.add(CheckpointCallback({.save_n_best = 2, .save_every_batches = 1}));
  options.callbacks.add(at_step({.restart = 0, .epoch = 1, .loader = "valid", .batch = 1}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 3, .batch = 1}));
  const TrainResult found = toy::train(options);

  EXPECT_EQ(csv_files(disturbed.path()), csv_files(calm.path()));
  const auto lines = recoveries_in(disturbed.path());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["rank"], 1);
  EXPECT_EQ(lines[0]["kind"], "lost");
  EXPECT_THAT(lines[0]["reason"].get<std::string>(), HasSubstr("signal 9"));
  EXPECT_EQ(lines[0]["epoch"], 1);
  EXPECT_EQ(lines[1]["epoch"], 3);
  EXPECT_EQ(lines[1]["batch"], 1);
  for (const auto& line : lines) {
    EXPECT_GE(line["repeated_batches"], 0);
    EXPECT_GT(line["seconds"], 0);
    EXPECT_LT(line["seconds"], scaled(5));
  }
  const auto summary = nlohmann::json::parse(read_file(disturbed / "summary.json"));
  EXPECT_EQ(summary["recoveries"], 2);
  EXPECT_EQ(summary["weights_hash"], found.weights_hash);
  EXPECT_TRUE(fs::exists(disturbed / "checkpoints/best.pth"));
}

// Rank 1 takes part in every snapshot inside an epoch. It dies after the first batch in which there
// were two: one for a file and one for a point.
class DiesAfterAPoint final : public Callback {
 public:
  CallbackTraits traits() const override { return {.metric_names = no_metrics()}; }
  void on_batch_end(State& state) override {
    const bool is_worker = state.comm->rank() == 1 && state.restarts == 0;
    if (is_worker && snapshots_ >= 2) ::raise(SIGKILL);
    snapshots_ = 0;
  }
  void gather(comm::Communicator&) override { ++snapshots_; }

 private:
  int snapshots_ = 0;  // since the last on_batch_end
};

TEST(Recovery, PointsAreTakenAlsoIfAFileIsAlwaysBeingWritten) {
  const TemporaryDirectory logdir;
  TrainOptions options = restarting({.max_restarts = 1});
  options.logdir = logdir.path();
  options.num_epochs = 1'000'000;
  options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  options.callbacks.add(std::make_shared<DiesAfterAPoint>());
  auto hooks = std::make_shared<toy::Hooks>();
  const auto limit = std::chrono::steady_clock::now() + scaled(20s);
  hooks->epoch_end = [&](State& state) {
    const bool is_late = std::chrono::steady_clock::now() > limit;
    if (state.restarts > 0 || is_late) state.request_stop("enough");
  };
  options.callbacks.add(hooks);
  const TrainResult found = toy::train(options);
  ASSERT_EQ(found.recoveries, 1);
  EXPECT_LE(recoveries_in(logdir.path()).at(0)["repeated_batches"], 2);

  // Every row is there once, also those from before the point.
  std::ifstream rows(logdir / "logs/train.csv");
  std::string row;
  std::getline(rows, row);  // the header
  std::int64_t epochs = 0;
  while (std::getline(rows, row)) EXPECT_TRUE(row.starts_with(fmt::format("{},", ++epochs))) << row;
  EXPECT_EQ(epochs, found.epochs);
}

// What a callback keeps in its state goes back with the run.
class StepCounter final : public Callback {
 public:
  CallbackTraits traits() const override { return {.metric_names = no_metrics()}; }
  void on_step(State&) override { ++steps; }
  StateDict state() const override { return {{"steps", steps}}; }
  void load_state(const StateDict& state) override { steps = state.get<std::int64_t>("steps"); }

  std::int64_t steps = 0;
};

TEST(Recovery, CallbacksSeeEveryBatchOnceInTheEnd) {
  const auto calm = std::make_shared<StepCounter>();
  TrainOptions options = restarting({});
  options.callbacks.add(calm);
  toy::train(options);

  const auto counting = std::make_shared<StepCounter>();
  std::vector<int> starts;
  int ends = 0, exceptions = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_start = [&](State& state) { starts.push_back(state.restarts); };
  hooks->run_end = [&](State&) { ++ends; };
  hooks->exception = [&](State&) { ++exceptions; };
  options = restarting({.max_restarts = 2});
  options.callbacks.add(counting);
  options.callbacks.add(hooks);
  options.callbacks.add(at_step({.restart = 0, .epoch = 1, .batch = 2}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 2, .batch = 2}));
  toy::train(options);
  EXPECT_EQ(counting->steps, calm->steps);
  EXPECT_THAT(starts, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(exceptions, 0) << "the run has not failed";
}

// Parameters that were frozen after the point are not frozen at the point.
TEST(Recovery, FreezingHappensAgainWhereItHappened) {
  const auto options_of = [](int max_restarts) {
    TrainOptions options = restarting({.max_restarts = max_restarts});
    options.num_epochs = 4;
    options.callbacks.add(
        FreezeCallback({.names = {"0.*", "1.*"}, .from_epoch = 2, .epochs = 1, .eval = true}));
    options.optimizer = {optim::Adam{.lr = 0.01}, {{.names = "4.bias", .frozen = true}}};
    return options;
  };
  const TrainResult expected = toy::train(options_of(0));
  TrainOptions options = options_of(2);
  options.callbacks.add(at_step({.restart = 0, .epoch = 2, .batch = 1}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 3, .batch = 1}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, 2);
}

TEST(Recovery, ARunThatBeganWithAFileDoesNotBeginAgain) {
  const TemporaryDirectory folder;
  checkpoint::save_weights(folder / "a.pth", Model(toy::model(5)).state());
  const auto options_of = [&](int max_restarts) {
    TrainOptions options = restarting({.max_restarts = max_restarts});
    options.weights = {folder / "a.pth", {.skip = {"4.*"}}};
    return options;
  };
  const TrainResult expected = toy::train(options_of(0));
  TrainOptions options = options_of(2);
  options.callbacks.add(at_step({.restart = 0, .epoch = 1, .batch = 1}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 2, .batch = 1}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, 2);
}

// What the failed attempt froze must not be thawed in the next one: the other callback froze it.
TEST(Recovery, OneFreezeCallbackDoesNotThawWhatAnotherFroze) {
  const auto options_of = [](int max_restarts) {
    TrainOptions options = restarting({.max_restarts = max_restarts});
    auto slow = std::make_shared<toy::Hooks>();
    // The first point takes long, so there is no other one before the failure.
    slow->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    options.callbacks.add(slow);
    options.callbacks.add(FreezeCallback({.names = {"0.*"}, .epochs = 1}));
    options.callbacks.add(FreezeCallback({.names = {"0.*"}, .from_epoch = 2, .epochs = 1}));
    return options;
  };
  const TrainResult expected = toy::train(options_of(0));
  TrainOptions options = options_of(1);
  options.callbacks.add(at_step({.epoch = 2, .batch = 1}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, 1);
}

TEST(Recovery, ASignalToOneWorkerDoesNotEndTheRun) {
  const TrainResult expected = toy::train(restarting({}));
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(strsignal(signal));
    TrainOptions options = restarting({.max_restarts = 1});
    options.callbacks.add(at_step({.epoch = 2, .batch = 1, .strike = [signal] {
                                     ::raise(signal);
                                     std::this_thread::sleep_for(kSignalGrace);  // rank 0 has none
                                   }}));
    const TemporaryDirectory logdir;
    options.logdir = logdir.path();
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    ASSERT_EQ(found.recoveries, signal == SIGTERM ? 1 : 0);
    if (signal == SIGINT) continue;
    const std::string reason = recoveries_in(logdir.path()).at(0)["reason"];
    EXPECT_THAT(reason, HasSubstr("signal 15"));
  }
}

// As a batch system or a terminal does it: rank 0 gets the signal, too.
TEST(Recovery, ASignalToAllProcessesSavesTheRunAndEndsIt) {
  const TrainResult expected = toy::train(restarting({}));
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(strsignal(signal));
    const TemporaryDirectory logdir;
    const pid_t child = start_process([&] {
      TrainOptions options = restarting({.max_restarts = 1});
      options.logdir = logdir.path();
      for (const int rank : {0, 1}) {
        // To this thread: another one might get it some batches later.
        options.callbacks.add(at_step(
            {.rank = rank, .epoch = 2, .batch = 1, .strike = [signal] { ::raise(signal); }}));
      }
      toy::train(options);
      return 0;
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_TRUE(recoveries_in(logdir.path()).empty()) << "the workers did not die of it";
    TrainOptions options = restarting({});
    options.logdir = logdir.path();
    options.resume = "last";
    const TrainResult resumed = toy::train(options);
    EXPECT_EQ(resumed.weights_hash, expected.weights_hash);
    EXPECT_EQ(resumed.epochs, 2) << "the run was saved inside the second one";
  }
}

TEST(Recovery, AWorkerThatHangsIsReplacedAfterTheTimeLimit) {
  const TrainResult expected = toy::train(restarting({}));
  const std::chrono::milliseconds limit = scaled(500ms);
  for (const bool stopped : {false, true}) {
    SCOPED_TRACE(stopped ? "stopped" : "asleep");
    TrainOptions options = restarting({.max_restarts = 1, .timeout = limit});
    Fault fault{.epoch = 2, .batch = 1};
    fault.strike = stopped ? std::function<void()>([] { ::raise(SIGSTOP); })
                           : [] { std::this_thread::sleep_for(std::chrono::hours(1)); };
    options.callbacks.add(at_step(fault));
    const TemporaryDirectory logdir;
    options.logdir = logdir.path();
    expect_equal(toy::train(options), expected);
    const auto lines = recoveries_in(logdir.path());
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0]["kind"], "hang");
    EXPECT_EQ(lines[0]["rank"], 1);
  }
}

TEST(Recovery, AnExceptionIsTriedOnceMore) {
  const TrainResult expected = toy::train(restarting({}));
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(fmt::format("of rank {}", rank));
    TrainOptions options = restarting({.max_restarts = 3});
    options.callbacks.add(at_step({.rank = rank, .epoch = 2, .batch = 2, .strike = [] {
                                     throw std::runtime_error("the network drive is away");
                                   }}));
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 1);
  }
}

TEST(Recovery, TheSameExceptionAtTheSameBatchTwiceEndsTheRun) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(fmt::format("of rank {}", rank));
    TrainOptions options = restarting({.max_restarts = 9});
    int exceptions = 0;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = [&](State& state) {
      if (state.comm->rank() != rank || state.progress.epoch != 2) return;
      throw std::runtime_error(fmt::format("attempt {}", state.restarts));
    };
    hooks->exception = [&](State&) { ++exceptions; };
    options.callbacks.add(hooks);
    const std::string error = toy::error_of([&] { toy::train(options); });
    EXPECT_EQ(exceptions, 1);
    EXPECT_THAT(error, HasSubstr("same batch twice"));
    EXPECT_THAT(error, HasSubstr("1. "));
    EXPECT_THAT(error, HasSubstr("attempt 0"));
    EXPECT_THAT(error, HasSubstr("2. "));
    EXPECT_THAT(error, HasSubstr("attempt 1"));
  }
}

TEST(Recovery, AWrongOptionIsNotTriedAgain) {
  TrainOptions options = restarting({.max_restarts = 9});
  int most = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [&](State& state) {
    most = std::max(most, state.restarts);
    if (state.comm->rank() == 1) throw ConfigError("alpha: expected 1, got 2");
  };
  options.callbacks.add(hooks);
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("alpha: expected 1, got 2"));
  EXPECT_EQ(most, 0);
}

TEST(Recovery, TheBudgetOfRestartsIsKept) {
  TrainOptions options = restarting({.max_restarts = 2});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [](State& state) {
    if (state.comm->rank() == 1 && state.progress.epoch == 2) ::raise(SIGKILL);
  };
  options.callbacks.add(hooks);
  try {
    toy::train(options);
    FAIL();
  } catch (const WorkerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_restarts is 2"));
    EXPECT_THAT(error.what(), HasSubstr("3. rank 1 (in epoch 2"));
    EXPECT_THAT(error.what(), HasSubstr("signal 9"));
  }
}

// Hooks that note which of them were called on rank 0, in their order.
std::shared_ptr<toy::Hooks> noting(std::vector<std::string>& called) {
  auto hooks = std::make_shared<toy::Hooks>();
  const auto note = [&called](std::string name) {
    return [&called, name = std::move(name)](State& state) {
      if (state.comm->rank() == 0) called.push_back(name);
    };
  };
  hooks->run_start = note("start");
  hooks->exception = note("exception");
  hooks->run_end = note("end");
  return hooks;
}

// Everything is trained when a worker dies: the run does not need it any more.
TEST(Recovery, AfterOnRunEndNoAttemptFollows) {
  const TrainResult expected = toy::train(restarting({}));
  for (const bool load_best : {false, true}) {
    std::vector<std::string> called;
    TrainOptions options = restarting({.max_restarts = 3});
    options.load_best_on_end = load_best;
    options.profile = true;
    options.callbacks.add(noting(called));
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->run_end = [](State& state) {
      if (state.comm->rank() == 1) ::raise(SIGKILL);
    };
    options.callbacks.add(hooks);
    const toy::Warnings warnings;
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 0);
    EXPECT_THAT(called, testing::ElementsAre("start", "end"));
    ASSERT_FALSE(warnings.texts.empty());
    EXPECT_THAT(warnings.texts.back(), HasSubstr("failed when the work was done"));
    const torch::Tensor weights = found.model.parameters()[0].second;
    EXPECT_TRUE(torch::isfinite(weights).all().item<bool>()) << "in memory of this process";
  }
}

TEST(Recovery, AnErrorAfterOnRunEndIsNotTriedAgain) {
  const TemporaryDirectory logdir;
  std::vector<std::string> called;
  TrainOptions options = restarting({.max_restarts = 3});
  options.logdir = logdir.path();
  options.callbacks.add(noting(called));
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_end = [&](State& state) {
    // The summary cannot be written.
    if (state.comm->rank() == 0) fs::create_directories(logdir / "summary.json/in the way");
  };
  options.callbacks.add(hooks);
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("summary.json"));
  EXPECT_THAT(called, testing::ElementsAre("start", "end"));
}

// The second attempt fails before its callbacks begin. Those of the first one must still learn of
// the end of the run, because they are the same objects.
TEST(Recovery, CallbacksThatBeganLearnOfTheEnd) {
  struct Checked : Callback {
    void check(const State& state) const override {
      if (state.restarts > 0 && state.comm->rank() == 0) throw std::runtime_error("no more");
    }
  };
  std::vector<std::string> called;
  TrainOptions options = restarting({.max_restarts = 1});
  options.callbacks.add(noting(called));
  options.callbacks.add(std::make_shared<Checked>());
  options.callbacks.add(at_step({.epoch = 2}));
  std::int64_t epoch = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->exception = [&](State& state) { epoch = state.progress.epoch; };
  options.callbacks.add(hooks);
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("no more"));
  EXPECT_THAT(called, testing::ElementsAre("start", "exception", "end"));
  EXPECT_EQ(epoch, 2) << "the progress of the attempt that had begun";
}

// The same if there is not even a loop.
TEST(Recovery, CallbacksThatBeganLearnOfTheEndWithoutAnotherLoop) {
  std::vector<std::string> called;
  bool fails = false;
  TrainOptions options = restarting({.max_restarts = 1});
  options.optimizer = [&](std::vector<torch::Tensor> parameters) {
    if (fails) throw std::runtime_error("no optimizer");
    return std::make_unique<torch::optim::SGD>(std::move(parameters), 0.1);
  };
  options.callbacks.add(noting(called));
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [&](State& state) { fails = state.progress.epoch == 2; };
  hooks->exception = [&](State& state) {
    EXPECT_EQ(state.progress.epoch, 2);
    EXPECT_EQ(state.comm->size(), 1);
    EXPECT_THAT(toy::error_of([&] { std::rethrow_exception(state.exception); }),
                HasSubstr("no optimizer"));
  };
  options.callbacks.add(hooks);
  options.callbacks.add(at_step({.epoch = 2, .batch = 2}));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("no optimizer"));
  EXPECT_THAT(called, testing::ElementsAre("start", "exception", "end"));
}

// Its state is empty until it has seen a batch, so it is not in the first point.
class LateCounter final : public Callback {
 public:
  CallbackTraits traits() const override { return {.metric_names = no_metrics()}; }
  void on_step(State&) override { ++steps; }
  StateDict state() const override { return steps > 0 ? StateDict{{"steps", steps}} : StateDict(); }
  void load_state(const StateDict& state) override {
    steps = state.get_or<std::int64_t>("steps", 0);
  }

  std::int64_t steps = 0;
};

TEST(Recovery, ACallbackThatRememberedNothingForgets) {
  const auto count = [](bool fails) {
    const auto counter = std::make_shared<LateCounter>();
    TrainOptions options = restarting({.max_restarts = 1});
    options.callbacks.add(counter);
    auto slow = std::make_shared<toy::Hooks>();
    // The first point takes long, so there is no other one before the failure.
    slow->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    options.callbacks.add(slow);
    if (fails) options.callbacks.add(at_step({.epoch = 1, .batch = 2}));
    EXPECT_EQ(toy::train(options).recoveries, fails ? 1 : 0);
    return counter->steps;
  };
  EXPECT_EQ(count(true), count(false));
}

TEST(Recovery, ARangeTestOfLearningRatesGoesOn) {
  const auto options_of = [](const std::shared_ptr<LRFinderCallback>& finder) {
    TrainOptions options = restarting({.max_restarts = 3});
    options.optimizer = optim::SGD{.lr = 123};
    options.num_epochs = 100;
    options.callbacks.add(finder);
    return options;
  };
  const auto make = [] {
    return std::make_shared<LRFinderCallback>(
        LRFinderCallbackOptions{.first_lr = 1e-3, .final_lr = 0.5, .num_steps = 20});
  };
  const auto calm = make(), disturbed = make();
  const TrainResult expected = toy::train(options_of(calm));
  TrainOptions options = options_of(disturbed);
  options.callbacks.add(at_step({.restart = 0, .epoch = 2, .batch = 1}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 5, .batch = 1}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, 2);
  EXPECT_EQ(found.stop_reason, expected.stop_reason);
  ASSERT_EQ(disturbed->points().size(), calm->points().size());
  for (std::size_t i = 0; i < calm->points().size(); ++i) {
    EXPECT_EQ(disturbed->points()[i].lr, calm->points()[i].lr) << i;
    EXPECT_EQ(disturbed->points()[i].loss, calm->points()[i].loss) << i;
  }
}

std::vector<std::string> checkpoint_files(const fs::path& logdir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(logdir / "checkpoints")) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// The files that last.pth lists are there, and no others.
void expect_consistent(const fs::path& logdir) {
  const auto last = checkpoint::load(logdir / "checkpoints/last.pth");
  const auto listed = last.get<StateDict>("callbacks").get<StateDict>("CheckpointCallback");
  std::set<std::string> expected = {"last.pth", "_metrics.json"};
  for (const auto& value : listed.get<StateList>("best")) {
    const auto epoch = value.get_if<StateDict>()->get<std::int64_t>("epoch");
    expected.insert(fmt::format("epoch.{:04}.pth", epoch));
    expected.insert("best.pth");
  }
  const auto files = checkpoint_files(logdir);
  EXPECT_EQ(std::set<std::string>(files.begin(), files.end()), expected);
}

// The run goes back to a point that is older than its newest checkpoints, and then ends.
TEST(Recovery, CheckpointsFitTheMomentToWhichTheRunWentBack) {
  const TemporaryDirectory calm, disturbed;
  TrainOptions options = restarting({});
  options.logdir = calm.path();
  toy::train(options);

  for (const bool ends_early : {false, true}) {
    SCOPED_TRACE(ends_early ? "and ends early" : "and goes on");
    options = restarting({.max_restarts = 3});
    options.logdir = disturbed.path();
    auto hooks = std::make_shared<toy::Hooks>();
    // The first point takes long, so there is no other one for a while.
    hooks->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    hooks->step = [&](State& state) {
      if (state.restarts == 1 && ends_early && state.comm->is_primary()) {
        ::kill(::getpid(), SIGINT);
      }
    };
    options.callbacks.add(hooks);
    options.callbacks.add(at_step({.epoch = 3, .loader = "valid", .batch = 1}));
    if (ends_early) {
      const pid_t child = start_process([&] {
        toy::train(options);
        return 0;
      });
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
      expect_consistent(disturbed.path());
      options = restarting({});
      options.logdir = disturbed.path();
      options.resume = "last";
    }
    toy::train(options);
    expect_consistent(disturbed.path());
    EXPECT_EQ(checkpoint_files(disturbed.path()), checkpoint_files(calm.path()));
    EXPECT_EQ(read_file(disturbed / "checkpoints/_metrics.json"),
              read_file(calm / "checkpoints/_metrics.json"));
    fs::remove_all(disturbed.path());
  }
}

// Notes the records that it gets.
class RecordNotes final : public Logger {
 public:
  void log_metrics(const Record& record) override {
    std::string text =
        fmt::format("{} {} {} {} {}", static_cast<int>(record.scope), record.loader,
                    record.progress.epoch, record.progress.batch_step, record.step.value_or(0));
    for (const auto& [name, value] : record.metrics) text += fmt::format(" {}={}", name, value);
    noted.push_back(text);
  }
  std::vector<std::string> noted;
};

// on_checkpoint comes when a file is written, which may be later in the repeated attempt.
TEST(Recovery, RecordsOfCheckpointsAreLoggedOnce) {
  const auto records_of = [](bool fails) {
    const TemporaryDirectory logdir;
    const auto logger = std::make_shared<RecordNotes>();
    TrainOptions options = restarting({.max_restarts = 2});
    options.logdir = logdir.path();
    options.log_batches = true;
    options.loggers = {logger};
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    hooks->checkpoint = [](State& state) {
      state.loggers.back()->log_metrics({Scope::kEpoch, "mine", state.progress, {{"saved", 1.0}}});
    };
    hooks->step = [fails](State& state) {
      // The files of the first attempt are there at once.
      if (fails && state.restarts == 0 && state.comm->rank() == 0) {
        std::this_thread::sleep_for(100ms);
      }
    };
    options.callbacks.add(hooks);
    options.callbacks.add(CheckpointCallback({.save_every_batches = 2}));
    if (fails) options.callbacks.add(at_step({.epoch = 2, .batch = 2}));
    EXPECT_EQ(toy::train(options).recoveries, fails ? 1 : 0);
    EXPECT_THAT(logger->noted, testing::Contains(HasSubstr("saved=1")));
    std::ranges::sort(logger->noted);
    return logger->noted;
  };
  EXPECT_EQ(records_of(true), records_of(false));
}

// The second attempt has one worker instead of two, as if no other could be made.
class ShrinkingEngine final : public DistributedDataParallelEngine {
 public:
  ShrinkingEngine() : DistributedDataParallelEngine({.workers = 2, .shards = 4}) {}

  void run(const Job& job) override {
    try {
      return DistributedDataParallelEngine::run({.prepare = job.prepare, .work = job.work});
    } catch (...) {
      if (!job.try_again({.error = std::current_exception()})) throw;
    }
    DistributedDataParallelEngine alone({.workers = 1, .shards = 4});
    alone.run({.prepare = [] {}, .work = job.work});
  }
};

// The records of a run, and those of its batches, do not depend on the workers. A callback that
// logs in on_batch_end logs the shards of rank 0, which are more when the other worker is gone.
TEST(Recovery, WithFewerWorkersNothingChangesAndNothingIsLoggedTwice) {
  const auto options_of = [](std::shared_ptr<Engine> engine, int max_restarts) {
    TrainOptions options = restarting({.max_restarts = max_restarts});
    options.engine = std::move(engine);
    options.log_batches = true;
    auto hooks = std::make_shared<toy::Hooks>();
    // The first point takes long, so there is no other one before the failure.
    hooks->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    options.callbacks.add(hooks);
    return options;
  };
  const auto engine_of = [](int workers) {
    return std::make_shared<DistributedDataParallelEngine>(
        DistributedDataParallelOptions{.workers = workers, .shards = 4});
  };
  const auto calm = std::make_shared<RecordNotes>();
  TrainOptions options = options_of(engine_of(2), 0);
  options.loggers = {calm};
  const TrainResult expected = toy::train(options);
  EXPECT_EQ(std::ranges::count_if(
                calm->noted, [](const std::string& text) { return text.starts_with("0 train"); }),
            3 * 2)
      << "one record for each batch";

  const auto single = std::make_shared<RecordNotes>();
  options = options_of(engine_of(1), 0);
  options.loggers = {single};
  toy::train(options);
  EXPECT_EQ(single->noted, calm->noted) << "also the values";

  for (const bool has_own : {false, true}) {
    SCOPED_TRACE(has_own ? "with records of a callback" : "without");
    const auto shrunk = std::make_shared<RecordNotes>();
    options = options_of(std::make_shared<ShrinkingEngine>(), 1);
    options.loggers = {shrunk};
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_end = [](State& state) {
      if (!state.is_train) return;
      for (const auto& logger : state.loggers) {
        logger->log_metrics({Scope::kEpoch, fmt::format("shard {}", state.shard), state.progress});
      }
    };
    if (has_own) options.callbacks.add(hooks);
    options.callbacks.add(at_step({.epoch = 2, .loader = "valid", .batch = 1}));
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 1);
    std::vector<std::string> own;
    std::ranges::copy_if(shrunk->noted, std::back_inserter(own), [](const std::string& text) {
      return text.find("shard ") != std::string::npos;
    });
    std::erase_if(shrunk->noted,
                  [](const std::string& text) { return text.find("shard ") != std::string::npos; });
    EXPECT_EQ(shrunk->noted, calm->noted);
    EXPECT_EQ(std::set(own.begin(), own.end()).size(), own.size()) << "none comes twice";
  }
}

// The run resumes inside an epoch, and a worker dies before the first point of this run.
TEST(Recovery, AResumedRunRecoversToo) {
  const TemporaryDirectory logdir;
  const TrainResult expected = toy::train(restarting({}));
  TrainOptions options = restarting({});
  options.logdir = logdir.path();
  options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [](State& state) {
    if (state.progress.epoch == 2 && state.loader == "train" && state.loader_batch == 2) {
      throw std::runtime_error("stop here");
    }
  };
  options.callbacks.add(hooks);
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("stop here"));

  options = restarting({.max_restarts = 3});
  options.logdir = logdir.path();
  options.resume = "last";
  options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  Fault at_once{.epoch = 2, .batch = 0};
  options.callbacks.add(at_step(at_once));
  const TrainResult found = toy::train(options);
  EXPECT_EQ(found.weights_hash, expected.weights_hash);
  EXPECT_EQ(found.history, expected.history);
  EXPECT_EQ(found.recoveries, 1);
  EXPECT_EQ(found.epochs, 2) << "those of this call";
}

TEST(Recovery, EarlyStoppingBestWeightsAndACallbackThatCounts) {
  const auto options_of = [](int max_restarts, std::vector<std::int64_t>& called) {
    TrainOptions options = restarting({.max_restarts = max_restarts});
    options.num_epochs = 6;
    options.load_best_on_end = true;
    options.callbacks.add(EarlyStoppingCallback({.patience = 2}));
    options.callbacks.add(
        on_epoch_end([&called](State& s) { called.push_back(s.progress.epoch); }).every(2));
    return options;
  };
  std::vector<std::int64_t> calm, called;
  const TrainResult expected = toy::train(options_of(0, calm));
  TrainOptions options = options_of(3, called);
  options.callbacks.add(at_step({.restart = 0, .epoch = 2, .batch = 2}));
  options.callbacks.add(at_step({.restart = 1, .epoch = 4, .batch = 1}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, expected.epochs >= 4 ? 2 : 1);
  EXPECT_EQ(found.stop_reason, expected.stop_reason);
  const torch::Tensor probe = torch::ones({3, 4});
  EXPECT_TRUE(torch::equal(found.model(probe), expected.model(probe))) << "the best weights";
  EXPECT_EQ(std::set(called.begin(), called.end()), std::set(calm.begin(), calm.end()));
}

TEST(Recovery, OneProcessTriesAgainToo) {
  const TrainResult expected = toy::train(restarting({.workers = 1}));
  TrainOptions options = restarting({.workers = 1, .max_restarts = 1});
  options.callbacks.add(at_step(
      {.rank = 0, .epoch = 2, .batch = 1, .strike = [] { throw std::runtime_error("once"); }}));
  const TrainResult found = toy::train(options);
  expect_equal(found, expected);
  EXPECT_EQ(found.recoveries, 1);
}

// The rows that it got, in their order.
struct Rows : Logger {
  void log_metrics(const Record& record) override {
    std::string row =
        fmt::format("{} {} {}", record.loader, record.progress.epoch, record.progress.update_step);
    for (const auto& [name, value] : record.metrics) row += fmt::format(" {}={}", name, value);
    rows.push_back(std::move(row));
  }
  std::vector<std::string> rows;
};

// Hooks at the start of the run, of epochs and of passes draw random numbers, change the weights,
// and log what they drew. A restart calls them again.
TEST(Recovery, StartsThatDrawChangeWeightsAndLogHappenOnce) {
  const auto train = [](int max_restarts, const std::vector<CallbackPtr>& faults) {
    const auto logger = std::make_shared<Rows>();
    auto hooks = std::make_shared<toy::Hooks>();
    const auto start = [](const std::string& name) {
      return [name](State& state) {
        const double drawn = torch::rand({1}).item<double>();
        for (const auto& to : state.loggers) {
          to->log_metrics({.loader = name, .progress = state.progress, .metrics = {{"x", drawn}}});
        }
        if (state.continues) return;
        const torch::NoGradGuard no_gradients;
        state.change_model([&] {
          for (auto& [key, parameter] : state.model.parameters()) parameter.mul_(1 + 0.1 * drawn);
        });
      };
    };
    hooks->run_start = start("run");
    hooks->epoch_start = start("epoch");
    hooks->loader_start = start("pass");
    TrainOptions options = restarting({.max_restarts = max_restarts});
    options.loggers = {logger};
    options.callbacks.add(hooks);
    for (const CallbackPtr& fault : faults) options.callbacks.add(fault);
    const TrainResult result = toy::train(options);
    return std::pair(result, logger->rows);
  };
  const auto [expected, rows] = train(0, {});
  EXPECT_GE(rows.size(), 10u);
  // Before the first batch of a pass, inside of passes, and in two attempts one after the other.
  auto early = std::make_shared<toy::Hooks>();
  early->loader_start = [](State& state) {
    if (state.comm->rank() == 1 && state.restarts == 0) ::raise(SIGKILL);
  };
  const auto [found, again] = train(4, {early, at_step({.restart = 1, .epoch = 1, .batch = 2}),
                                        at_step({.restart = 2, .epoch = 2}),
                                        at_step({.restart = 3, .epoch = 2, .loader = "valid"})});
  EXPECT_EQ(found.recoveries, 4);
  expect_equal(found, expected);
  EXPECT_EQ(again, rows);
}

// The attempt had locked the folder already.
TEST(Recovery, ALoggerThatCannotBeStartedIsStartedAgain) {
  struct Late : Rows {
    void start(const RunStart&) override {
      if (++starts == 1) throw Error("the server is busy");
    }
    int starts = 0;
  };
  const TemporaryDirectory logdir;
  const auto logger = std::make_shared<Late>();
  TrainOptions options = restarting({.max_restarts = 1});
  options.logdir = logdir.path();
  options.loggers = {logger};
  const TrainResult found = toy::train(options);
  expect_equal(found, toy::train(restarting({})));
  EXPECT_EQ(logger->starts, 2);
  EXPECT_TRUE(fs::exists(logdir / "summary.json"));
  EXPECT_FALSE(fs::exists(logdir / ".lock"));
}

// A signal may come when no batch is under way, and the last epochs may not be saved yet.
TEST(Recovery, ASignalBetweenTwoEpochsSavesTheRun) {
  const TrainResult expected = toy::train(restarting({}));
  const TemporaryDirectory logdir;
  const pid_t child = start_process([&] {
    TrainOptions options = restarting({});
    options.logdir = logdir.path();
    options.callbacks.add(CheckpointCallback({.save_every_epochs = 0}));
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->epoch_end = [](State& state) {
      if (state.comm->rank() == 0 && state.progress.epoch == 2) ::raise(SIGINT);
    };
    options.callbacks.add(hooks);
    toy::train(options);
    return 0;
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  TrainOptions options = restarting({});
  options.logdir = logdir.path();
  options.resume = "last";
  const TrainResult resumed = toy::train(options);
  EXPECT_EQ(resumed.weights_hash, expected.weights_hash);
  EXPECT_EQ(resumed.epochs, 1) << "two were saved";
}

// A request to stop, of any rank, is in the checkpoints of that epoch, because it ends the run
// later.
TEST(Recovery, AResumeKnowsThatTheRunWasToEndAfterItsEpoch) {
  const auto train = [](const fs::path& logdir, bool is_killed, bool resumes) {
    TrainOptions options = restarting({});
    options.logdir = logdir;
    options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    if (resumes) options.resume = "last";
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = [=](State& state) {
      if (state.progress.epoch != 2 || resumes) return;
      if (state.comm->rank() == 1 && state.loader == "train") state.request_stop("enough");
    };
    hooks->epoch_end = [=](State& state) {
      if (is_killed && state.comm->rank() == 0 && state.progress.epoch == 2) ::raise(SIGKILL);
    };
    options.callbacks.add(hooks);
    return toy::train(options);
  };
  const TemporaryDirectory calm, killed;
  const TrainResult expected = train(calm.path(), false, false);
  ASSERT_EQ(expected.epochs, 2);
  const pid_t child = start_process([&] {
    train(killed.path(), true, false);
    return 0;
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const TrainResult resumed = train(killed.path(), false, true);
  EXPECT_EQ(resumed.weights_hash, expected.weights_hash);
  EXPECT_EQ(resumed.stop_reason, "enough");
  EXPECT_EQ(resumed.epochs, 1);
}

// A callback may leave out a loader after another one's pass. It is not asked again by a run that
// goes on in a later pass.
TEST(Recovery, ALoaderThatIsLeftOutStaysSo) {
  const auto train = [](const fs::path& logdir, bool is_killed, bool resumes) {
    TrainOptions options = restarting({});
    options.loaders = {{"train", {toy::points(50), {.batch_size = 8, .shuffle = true}}},
                       {"train_more", {toy::points(50, 3), {.batch_size = 8}}},
                       {"valid", {toy::points(30, 2), {.batch_size = 10}}},
                       {"valid_more", {toy::points(30, 4), {.batch_size = 10}}}};
    options.logdir = logdir;
    options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    if (resumes) options.resume = "last";
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->loader_end = [](State& state) {
      if (state.loader == "train" && state.progress.epoch == 2) state.skip_loader("valid_more");
    };
    options.callbacks.add(hooks);
    const Fault fault{
        .epoch = 2, .loader = "train_more", .batch = 2, .strike = [] { throw std::bad_alloc(); }};
    if (is_killed) options.callbacks.add(at_step(fault));
    return toy::train(options);
  };
  const TemporaryDirectory calm, failed;
  const TrainResult expected = train(calm.path(), false, false);
  ASSERT_FALSE(expected.history.at(2).contains("valid_more"));
  ASSERT_TRUE(expected.history.at(3).contains("valid_more"));
  EXPECT_ANY_THROW(train(failed.path(), true, false));
  const TrainResult resumed = train(failed.path(), false, true);
  EXPECT_EQ(resumed.weights_hash, expected.weights_hash);
  EXPECT_EQ(resumed.history, expected.history);
}

// Logs a row of its own in every hook.
std::shared_ptr<toy::Hooks> logging_hooks() {
  auto hooks = std::make_shared<toy::Hooks>();
  const auto log = [](double hook) {
    return [hook](State& state) {
      const Metrics row = {{"hook", hook}, {"batches", double(state.progress.batch_step)}};
      for (const auto& logger : state.loggers) {
        logger->log_metrics({Scope::kLoader, "mine", state.progress, row});
      }
    };
  };
  hooks->run_start = log(1);
  hooks->epoch_start = log(2);
  hooks->loader_start = log(3);
  hooks->step = log(4);
  hooks->loader_end = log(5);
  hooks->epoch_end = log(6);
  return hooks;
}

TrainOptions logging_run(const fs::path& logdir) {
  TrainOptions options = toy::options();
  options.seed = 3;
  options.logdir = logdir;
  options.callbacks.add(logging_hooks());
  return options;
}

// With as many threads as a launched rank has.
TrainResult train_undisturbed(TrainOptions options) {
  options.engine = std::make_shared<DistributedDataParallelEngine>(
      DistributedDataParallelOptions{.workers = 1, .shards = 1});
  return toy::train(options);
}

// The process of rank 0 is a new one, and opens the files of the one before.
TEST(Recovery, ANewProcessOfRankZeroLogsEveryRowOnce) {
  const TemporaryDirectory calm, calm_with_batches;
  ASSERT_EQ(train_undisturbed(logging_run(calm.path())).epochs, 3);
  TrainOptions with_batches = logging_run(calm_with_batches.path());
  with_batches.log_batches = true;
  ASSERT_EQ(train_undisturbed(with_batches).epochs, 3);
  for (const auto& [epoch, loader] : std::vector<std::pair<std::int64_t, std::string>>{
           {1, "train"}, {2, "train"}, {2, "valid"}, {3, "valid"}}) {
    SCOPED_TRACE(fmt::format("epoch {}, {}", epoch, loader));
    const bool log_batches = epoch != 2;
    const TemporaryDirectory killed;
    run_killed_once([&, epoch = epoch, loader = loader](const process::MemoryFile& memory) {
      TrainOptions options = logging_run(killed.path());
      options.ddp = true;
      options.log_batches = log_batches;
      bool went_on_inside = false;
      std::uint64_t points = 0;
      auto hooks = std::make_shared<toy::Hooks>();
      hooks->epoch_start = [&](State& state) { went_on_inside |= state.continues; };
      hooks->loader_start = [&](State&) { points = memory.points(); };
      hooks->step = [&](State& state) {
        const bool is_there = state.progress.epoch == epoch && state.loader == loader;
        if (!is_there || state.restarts != 0) return;
        if (memory.points() > points) ::raise(SIGKILL);
        // Then a point is due, unless the one before took long.
        std::this_thread::sleep_for(scaled(state.loader_batch == 1 ? 200ms : 10000ms));
      };
      options.callbacks.add(hooks);
      const TrainResult result = toy::train(options);
      if (result.recoveries != 1) return 2;
      return went_on_inside ? 0 : 3;
    });
    const fs::path expected = log_batches ? calm_with_batches.path() : calm.path();
    EXPECT_EQ(csv_files(killed.path()), csv_files(expected));
    EXPECT_EQ(scalars_in(killed.path()), scalars_in(expected));
  }
}

// A logger that keeps its rows in memory until it is told to write them.
class LateWriter final : public Logger {
 public:
  explicit LateWriter(fs::path path) : path_(std::move(path)) {}
  void log_metrics(const Record& record) override {
    rows_ += fmt::format("{} {}\n", record.loader, record.progress.epoch);
  }
  void flush() override {
    std::ofstream(path_, std::ios::app) << rows_;
    rows_.clear();
  }

 private:
  fs::path path_;
  std::string rows_;
};

// When nothing was trained, the hooks of the run's start log again. After the first point they do
// not, and what they logged must be there.
TEST(Recovery, ANewProcessOfRankZeroLogsTheStartOfTheRunOnce) {
  const TemporaryDirectory calm;
  TrainOptions undisturbed = logging_run(calm.path());
  undisturbed.log_batches = true;
  ASSERT_EQ(train_undisturbed(undisturbed).epochs, 3);
  for (const bool has_point : {false, true}) {
    SCOPED_TRACE(has_point ? "after the first point" : "before the first point");
    const TemporaryDirectory killed;
    const fs::path late = killed / "late.txt";
    run_killed_once([&](const process::MemoryFile& memory) {
      TrainOptions options = logging_run(killed.path() / "logs");
      options.ddp = true;
      options.log_batches = true;
      options.loggers = {std::make_shared<LateWriter>(late)};
      auto hooks = std::make_shared<toy::Hooks>();
      hooks->run_start = [&](State& state) {
        if (!has_point && state.restarts == 0) ::raise(SIGKILL);
      };
      hooks->epoch_start = [&](State& state) {
        if (has_point && state.restarts == 0 && memory.points() > 1) ::raise(SIGKILL);
      };
      options.callbacks.add(hooks);
      return toy::train(options).recoveries == 1 ? 0 : 2;
    });
    EXPECT_EQ(csv_files(killed.path() / "logs"), csv_files(calm.path()));
    EXPECT_EQ(scalars_in(killed.path() / "logs"), scalars_in(calm.path()));
    std::istringstream rows(read_file(late));
    int starts = 0;
    for (std::string row; std::getline(rows, row);) starts += row == "mine 0" ? 1 : 0;
    EXPECT_EQ(starts, 1);
  }
}

// The hooks at the start of a resumed run log to it, although the run has a point already.
TEST(Recovery, ALoggerOfAResumeThatIsStartedLaterGetsAllRows) {
  struct Late : Rows {
    void start(const RunStart&) override {
      if (++starts == 1) throw Error("the server is busy");
    }
    int starts = 0;
  };
  const auto train = [](const std::shared_ptr<Rows>& logger) {
    const TemporaryDirectory logdir;
    TrainOptions options = restarting({.max_restarts = 1});
    options.callbacks.add(logging_hooks());
    options.logdir = logdir.path();
    options.num_epochs = 2;
    toy::train(options);
    options.num_epochs = 3;
    options.resume = "last";
    options.loggers = {logger};
    toy::train(options);
    return logger->rows;
  };
  const auto late = std::make_shared<Late>();
  EXPECT_EQ(train(late), train(std::make_shared<Rows>()));
  EXPECT_EQ(late->starts, 2);
}

// The first point of a resumed run is the checkpoint, which was made before its hooks were called.
// The run before has trained on, with other draws, so the files have later rows with other values.
TEST(Recovery, ANewProcessOfRankZeroCallsTheHooksOfAResume) {
  const auto resumed = [](const fs::path& logdir) {
    TrainOptions options = logging_run(logdir);
    options.resume = (logdir / "checkpoints/two.pth").string();
    options.seed = 5;
    return options;
  };
  const auto begin = [](const fs::path& logdir) {
    TrainOptions options = logging_run(logdir);
    options.num_epochs = 2;
    EXPECT_EQ(train_undisturbed(options).epochs, 2);
    fs::copy_file(logdir / "checkpoints/last.pth", logdir / "checkpoints/two.pth");
    options.num_epochs = 3;
    options.resume = "last";
    EXPECT_EQ(train_undisturbed(options).epochs, 1);
  };
  // Is lost when the loggers are started, or after the next point.
  struct Fatal : Logger {
    void start(const RunStart&) override { ::raise(SIGKILL); }
    void log_metrics(const Record&) override {}
  };
  const TemporaryDirectory calm;
  begin(calm.path());
  train_undisturbed(resumed(calm.path()));
  for (const bool has_point : {false, true}) {
    SCOPED_TRACE(has_point ? "after the next point" : "before any hook");
    const TemporaryDirectory killed;
    begin(killed.path());
    run_killed_once([&](const process::MemoryFile& memory) {
      TrainOptions options = resumed(killed.path());
      options.ddp = true;
      const bool is_first = memory.points() == 0;
      if (!has_point && is_first) options.loggers = {std::make_shared<Fatal>()};
      auto hooks = std::make_shared<toy::Hooks>();
      hooks->epoch_start = [&](State&) {
        if (has_point && is_first) ::raise(SIGKILL);
      };
      options.callbacks.add(hooks);
      return toy::train(options).recoveries == 1 ? 0 : 2;
    });
    EXPECT_EQ(csv_files(killed.path()), csv_files(calm.path()));
    EXPECT_EQ(scalars_in(killed.path()), scalars_in(calm.path()));
  }
}

// A resumed run calls the hooks of starts anew. All other rows of the epoch stay.
TEST(Recovery, AResumeInsideAnEpochKeepsTheRowsOfItsCallbacks) {
  const auto train = [](const fs::path& logdir, bool fails, bool resumes) {
    TrainOptions options = logging_run(logdir);
    options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    if (resumes) options.resume = "last";
    const Fault fault{.rank = 0, .epoch = 2, .loader = "train", .batch = 5, .strike = [] {
                        throw std::runtime_error("stop here");
                      }};
    if (fails) options.callbacks.add(at_step(fault));
    return toy::train(options);
  };
  const TemporaryDirectory calm, failed;
  const TrainResult expected = train(calm.path(), false, false);
  EXPECT_ANY_THROW(train(failed.path(), true, false));
  EXPECT_EQ(train(failed.path(), false, true).weights_hash, expected.weights_hash);
  const auto rows = [](const fs::path& logdir, const std::string& hook) {
    std::vector<std::string> found;
    std::istringstream text(csv_files(logdir).at("mine.csv"));
    for (std::string line; std::getline(text, line);) {
      if (line.ends_with("," + hook)) found.push_back(line);
    }
    return found;
  };
  for (const std::string hook : {"4", "5", "6"}) {
    EXPECT_EQ(rows(failed.path(), hook), rows(calm.path(), hook)) << "hook " << hook;
  }
  EXPECT_EQ(rows(failed.path(), "1").size(), 2U) << "one for each start";
  EXPECT_EQ(rows(failed.path(), "2").size(), 3U) << "one for each epoch";
  EXPECT_EQ(rows(failed.path(), "3").size(), 6U) << "one for each pass";
}

// Each resume drops the rows after the last whole epoch and logs those of its checkpoint again.
TEST(Recovery, NoRowComesTwiceAfterTwoResumes) {
  const auto train = [](const fs::path& folder, std::optional<std::int64_t> failing_batch,
                        bool resumes) {
    TrainOptions options = logging_run(folder);
    auto hooks = std::make_shared<toy::Hooks>();
    // Files take longer than batches, so that the file of an epoch is reported in the next one.
    hooks->run_start = [](State& state) { state.user.set("large", torch::zeros({1 << 22})); };
    hooks->checkpoint = [](State& state) {
      const Metrics row = {{"hook", 7}, {"batches", double(state.progress.batch_step)}};
      for (const auto& logger : state.loggers) {
        logger->log_metrics({Scope::kLoader, "mine", state.progress, row});
      }
    };
    options.callbacks.add(hooks);
    options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    if (resumes) options.resume = "last";
    if (failing_batch) {
      options.callbacks.add(
          at_step({.rank = 0, .epoch = 2, .loader = "train", .batch = *failing_batch, .strike = [] {
                     throw std::runtime_error("stop here");
                   }}));
    }
    return toy::train(options);
  };
  const auto rows = [](const fs::path& folder) {
    std::map<std::string, int> counts;
    std::istringstream text(csv_files(folder).at("mine.csv"));
    for (std::string line; std::getline(text, line);) counts[line] += 1;
    return counts;
  };
  const TemporaryDirectory calm, failed;
  train(calm.path(), std::nullopt, false);
  EXPECT_ANY_THROW(train(failed.path(), 3, false));
  EXPECT_ANY_THROW(train(failed.path(), 5, true));
  train(failed.path(), std::nullopt, true);
  auto expected = rows(calm.path());
  EXPECT_GT(expected.size(), 20U);
  const auto found = rows(failed.path());
  // Hooks at starts are called in each of the three processes, with another number of batches.
  for (const auto& [row, count] : found) EXPECT_LE(count, std::max(expected[row], 1)) << row;
  for (const auto& [row, count] : expected) {
    // A file that is written while the run fails is not reported (7).
    const bool stays = row.back() >= '4' && row.back() <= '6';
    if (stays) {
      EXPECT_TRUE(found.contains(row)) << row;
    }
  }
}

// A scheduler that begins with the optimizer's learning rate and does not save it.
class Halving : public optim::Scheduler {
 public:
  explicit Halving(optim::Optimizer& optimizer) : optimizer_(optimizer), first_(optimizer.lr()) {}
  std::string name() const override { return "Halving"; }
  optim::Per per() const override { return optim::Per::kBatch; }
  void step(std::optional<double>) override { set(steps_ + 1); }
  StateDict state() const override { return {{"steps", steps_}}; }
  void load_state(const StateDict& state) override { set(state.get<std::int64_t>("steps")); }

 private:
  void set(std::int64_t steps) {
    steps_ = steps;
    optimizer_.set_lr(std::ldexp(first_, -static_cast<int>(steps_)));
  }
  optim::Optimizer& optimizer_;
  double first_;
  std::int64_t steps_ = 0;
};

// The caller's optimizer keeps the learning rate of the failed attempt.
TEST(Recovery, ASchedulerBeginsWithTheFirstLearningRate) {
  for (const std::string backend : {"shm", "gloo"}) {
    SCOPED_TRACE(backend);
    const auto options_of = [&](int max_restarts) {
      TrainOptions options = restarting({.backend = backend, .max_restarts = max_restarts});
      const auto model = toy::model();
      options.model = model;
      options.optimizer = std::make_shared<torch::optim::SGD>(
          model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      options.scheduler = [](optim::Optimizer& optimizer, const optim::ScheduleContext&) {
        return std::make_unique<Halving>(optimizer);
      };
      return options;
    };
    const TrainResult expected = toy::train(options_of(0));
    TrainOptions options = options_of(2);
    options.callbacks.add(at_step({.restart = 0, .epoch = 2, .batch = 1}));
    options.callbacks.add(at_step({.restart = 1, .epoch = 3, .batch = 1}));
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 2);
  }
}

// Limits how many processes the user of the workers' template may have.
void limit_template_of_caller() {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::string stat;
    std::ifstream file(entry.path() / "stat");
    std::getline(file, stat);
    const auto wanted = fmt::format("(lockstep-templa) S {} ", ::getppid());
    if (stat.find(wanted) == std::string::npos) continue;
    const rlimit none{.rlim_cur = 1, .rlim_max = 1};
    ::prlimit(std::stoi(entry.path().filename()), RLIMIT_NPROC, &none, nullptr);
  }
}

// The limit of processes does not apply to root, so the run is in a process of another user.
TEST(Recovery, TheRunGoesOnWithFewerWorkersIfNoneCanBeMade) {
  const TrainResult expected = toy::train(restarting({}));
  for (const int min_workers : {1, 2}) {
    SCOPED_TRACE(fmt::format("min_workers {}", min_workers));
    const auto work = [&] {
      TrainOptions options = restarting({.max_restarts = 2});
      options.min_workers = min_workers;
      options.callbacks.add(at_step({.epoch = 2, .batch = 1, .strike = [] {
                                       limit_template_of_caller();
                                       ::raise(SIGKILL);
                                     }}));
      toy::Warnings warnings;
      if (min_workers == 2) {
        const std::string error = toy::error_of([&] { toy::train(options); });
        return error.find("cannot fork worker 1 of 2") != std::string::npos ? 0 : 2;
      }
      const TrainResult found = toy::train(options);
      if (found.weights_hash != expected.weights_hash || found.recoveries != 1) return 3;
      if (found.history != expected.history) return 4;
      return std::ranges::any_of(warnings.texts,
                                 [](const std::string& text) {
                                   return text.find("goes on with 1 of 2") != std::string::npos;
                                 })
                 ? 0
                 : 5;
    };
    const pid_t child = start_process(work, {.user = 61237});
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(Recovery, OptionsThatMakeNoSenseAreRefused) {
  TrainOptions options = toy::options();
  options.max_restarts = 2;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("max_restarts: 2 makes sense with workers only"));
  options.engine = std::make_shared<DeviceEngine>();
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("made anew"));
  options.max_restarts = -1;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("max_restarts: expected 0 or more, got -1"));
  options.max_restarts = 0;
  options.min_workers = 0;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("min_workers: expected 1 or more, got 0"));
  options = restarting({.max_restarts = 1});
  options.min_workers = 3;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("min_workers: expected at most the number of workers, which is 2, got 3"));
}

// Worker 1 dies before the first point. The caller's optimizer then has the rates of a scheduler
// that has begun: 0, from which no ratio of the groups can be computed, or products that were
// rounded. The second failure is after a point, which must have the right ratios.
TEST(Recovery, EveryGroupOfAnOptimizerBeginsWithItsFirstLearningRate) {
  const std::vector<optim::SchedulerSpec> schedulers{
      optim::FunctionLR{
          .factor = [](std::int64_t step,
                       const optim::ScheduleContext&) { return static_cast<double>(step) / 6; },
          .per = optim::Per::kBatch},
      optim::LinearLR{.start_factor = 0.1, .per = optim::Per::kBatch}};
  for (const optim::SchedulerSpec& scheduler : schedulers) {
    const auto options_of = [&](int max_restarts) {
      TrainOptions options = restarting({.max_restarts = max_restarts});
      const auto model = toy::model();
      std::vector<torch::Tensor> first, rest;
      for (const auto& parameter : model->parameters()) {
        (first.size() < 2 ? first : rest).push_back(parameter);
      }
      std::vector<torch::optim::OptimizerParamGroup> groups;
      groups.emplace_back(first);
      groups.emplace_back(rest, std::make_unique<torch::optim::SGDOptions>(0.01));
      options.model = model;
      options.optimizer =
          std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.1).momentum(0.9));
      options.scheduler = scheduler;
      return options;
    };
    const TrainResult expected = toy::train(options_of(0));
    TrainOptions options = options_of(2);
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->run_start = [](State& state) {
      if (state.comm->rank() == 1 && state.restarts == 0) ::raise(SIGKILL);
    };
    options.callbacks.add(hooks);
    options.callbacks.add(at_step({.restart = 1, .epoch = 2, .batch = 1}));
    const TrainResult found = toy::train(options);
    expect_equal(found, expected);
    EXPECT_EQ(found.recoveries, 2);
  }
}

}  // namespace
}  // namespace lockstep
