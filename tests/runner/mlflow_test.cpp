// Whole runs that are logged to a stand-in for an MLflow server.
#include <csignal>
#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/log/mlflow_logger.h"
#include "tests/log/mlflow_server.h"
#include "tests/support/torch_fork.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

// The environment that switches MLflow on.
class MlflowOfRun : public ::testing::Test {
 protected:
  MlflowOfRun() {
    ::setenv("MLFLOW_TRACKING_URI", server_.uri().c_str(), 1);
    ::setenv("MLFLOW_EXPERIMENT_NAME", "toys", 1);
  }
  ~MlflowOfRun() override {
    ::unsetenv("MLFLOW_TRACKING_URI");
    ::unsetenv("MLFLOW_EXPERIMENT_NAME");
  }

  TrainOptions in_folder() const {
    TrainOptions options = toy::options();
    options.logdir = folder_ / "run";
    return options;
  }
  std::size_t runs() const {
    return static_cast<std::size_t>(std::ranges::count(
        server_.calls(), "runs/create", [](const auto& call) { return call.first; }));
  }

  MlflowServer server_;
  TemporaryDirectory folder_;
};

TEST_F(MlflowOfRun, AnyRunIsLogged) {
  const toy::Warnings warnings;
  TrainOptions options = in_folder();
  options.documents = {{"config", "model: toy"}};
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_end = [](State& state) {
    state.log_artifact(
        {.name = fmt::format("notes/{}.txt", state.progress.epoch), .content = "seen"});
    state.log_image("dot", make_image({.width = 1, .height = 1}, {}));
  };
  options.callbacks = {hooks};
  const TrainResult result = toy::train(options);
  EXPECT_EQ(server_.experiment(), "toys");
  EXPECT_EQ(server_.body_of("runs/create")["run_name"], "run");
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  EXPECT_EQ(server_.parameters("abc").at("optimizer"), "Adam");
  for (int epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_EQ(server_.metrics().at(fmt::format("valid/loss {}", epoch)),
              result.history.at(epoch).at("valid").at("loss"));
  }
  const auto artifacts = server_.artifacts();
  const std::string path = "7/abc/artifacts/";
  EXPECT_EQ(artifacts.at(path + "documents/config.yml"), "model: toy");
  EXPECT_EQ(artifacts.at(path + "summary.json"), read_file(folder_ / "run/summary.json"));
  EXPECT_EQ(artifacts.at(path + "checkpoints/" + result.best_checkpoint->filename().string()),
            read_file(*result.best_checkpoint));
  EXPECT_EQ(artifacts.at(path + "notes/3.txt"), "seen");
  EXPECT_THAT(artifacts, Contains(Key(path + "images/valid/dot.0003.png")));
  EXPECT_EQ(read_file(folder_ / "run/artifacts/notes/3.txt"), "seen");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/images/valid/dot.0003.png"));
  EXPECT_THAT(warnings.texts, ::testing::IsEmpty());
}

TEST_F(MlflowOfRun, TheWeightsAreTheSameWithIt) {
  const std::string logged = toy::train(toy::options()).weights_hash;
  ::unsetenv("MLFLOW_TRACKING_URI");
  EXPECT_EQ(toy::train(toy::options()).weights_hash, logged);
  EXPECT_EQ(runs(), 1u);
}

TEST_F(MlflowOfRun, ALoggerOfTheOptionsReplacesIt) {
  TrainOptions options = toy::options();
  options.loggers = {std::make_shared<MlflowLogger>(MlflowOptions{.experiment = "mine"})};
  toy::train(options);
  EXPECT_EQ(runs(), 1u);
  EXPECT_EQ(server_.experiment(), "mine");
}

TEST_F(MlflowOfRun, AnExceptionIsAFailure) {
  TrainOptions options = in_folder();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->epoch_end = [](State& state) {
    if (state.progress.epoch == 2) throw std::runtime_error("enough");
  };
  options.callbacks = {hooks};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("enough"));
  EXPECT_EQ(server_.status("abc"), "FAILED");
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 2"))) << "what was logged is sent";
  // It goes on with the same MLflow run.
  TrainOptions again = in_folder();
  again.resume = "last";
  toy::train(again);
  EXPECT_EQ(runs(), 1u);
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 3")));
}

TEST_F(MlflowOfRun, CtrlCKillsIt) {
  const pid_t child = fork_with_autograd();
  ASSERT_GE(child, 0);
  if (child == 0) {
    TrainOptions options = in_folder();
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->epoch_end = [](State&) { std::raise(SIGINT); };
    options.callbacks = {hooks};
    // OpenMP's threads are not there after a fork. A new thread makes new ones.
    std::thread([&] {
      try {
        toy::train(options);
      } catch (...) {
      }
    }).join();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(server_.status("abc"), "KILLED");
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 1")));
}

// A worker dies, and batches are repeated: MLflow sees one run, and every point once.
TEST_F(MlflowOfRun, ARestartIsNotSeen) {
  const auto points = [&](bool dies) {
    TrainOptions options = toy::options();
    options.ddp = true;
    options.workers = 2;
    options.max_restarts = 2;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = [dies](State& state) {
      const bool is_place = state.progress.epoch == 2 && state.loader_batch == 2;
      if (dies && is_place && state.comm->rank() == 1 && state.restarts == 0) ::raise(SIGKILL);
    };
    options.callbacks = {hooks};
    server_.forget_calls();
    EXPECT_EQ(toy::train(options).recoveries, dies ? 1 : 0);
    EXPECT_EQ(runs(), 1u);
    std::vector<std::string> found;
    for (const auto& [name, body] : server_.calls()) {
      for (const auto& metric : body.value("metrics", nlohmann::json::array())) {
        found.push_back(fmt::format("{} {} {}", metric["key"].get<std::string>(),
                                    metric["step"].get<std::int64_t>(), metric["value"].dump()));
      }
    }
    return found;
  };
  EXPECT_EQ(points(true), points(false));
  EXPECT_EQ(server_.status("abc"), "FINISHED");
}

TEST_F(MlflowOfRun, ALostServerDoesNotEndTheRun) {
  const toy::Warnings warnings;
  ::setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1", 1);
  EXPECT_EQ(toy::train(toy::options()).epochs, 3);
  ASSERT_EQ(warnings.texts.size(), 2u) << "one at the first failure, one at the end";
  EXPECT_THAT(warnings.texts[1], HasSubstr("were not sent"));
}

}  // namespace
}  // namespace lockstep
