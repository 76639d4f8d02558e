#include "lockstep/log/mlflow_logger.h"

#include <chrono>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "tests/log/mlflow_server.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

class MlflowLoggerTest : public ::testing::Test {
 protected:
  MlflowLoggerTest()
      : before_(
            set_warning_handler([this](const std::string& text) { warnings_.push_back(text); })) {}
  ~MlflowLoggerTest() override { set_warning_handler(before_); }

  static Record loss(std::int64_t epoch, double value) {
    return {.scope = Scope::kLoader,
            .loader = "train",
            .progress = {.epoch = epoch},
            .metrics = {{"loss", value}, {"loss/std", 0.5}}};
  }
  std::string artifact(const std::string& name) const {
    return server_.artifacts()["7/abc/artifacts/" + name];
  }

  MlflowServer server_;
  std::vector<std::string> warnings_;
  WarningHandler before_;
};

TEST_F(MlflowLoggerTest, LogsARun) {
  const TemporaryDirectory logdir;
  write_file_atomically(logdir / "summary.json", "{}");
  write_file_atomically(logdir / "best.pth", "weights");
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.hparams = {{"lr", 0.1}},
                .logdir = logdir.path(),
                .documents = {{"config", "model: []"}, {"environment", "{}"}}});
  EXPECT_EQ(logger.run_id(), "abc");
  EXPECT_EQ(server_.body_of("runs/create")["run_name"], logdir.path().filename().string());
  EXPECT_EQ(server_.parameters("abc").at("lr"), "0.1");
  EXPECT_EQ(artifact("documents/config.yml"), "model: []");
  EXPECT_EQ(artifact("documents/environment.json"), "{}");
  logger.log_metrics(loss(1, 0.25));
  logger.log_metrics({.loader = kEpochKey, .progress = {.epoch = 1}, .metrics = {{"lr", 0.1}}});
  logger.log_metrics({.scope = Scope::kBatch,
                      .loader = "train",
                      .progress = {.epoch = 1, .sample_step = 32},
                      .metrics = {{"loss", 2}}});
  EXPECT_TRUE(server_.metrics().empty()) << "one request per epoch";
  logger.flush();
  EXPECT_EQ(server_.metrics().at("train/loss 1"), 0.25);
  EXPECT_EQ(server_.metrics().at("train/loss.std 1"), 0.5);
  EXPECT_EQ(server_.metrics().at("lr 1"), 0.1);
  EXPECT_EQ(server_.metrics().at("train/loss.batch 32"), 2);
  logger.log_image("valid", "matrix", make_image({.width = 2, .height = 2}, {}), {.epoch = 1});
  EXPECT_THAT(artifact("images/valid/matrix.0001.png"), HasSubstr("PNG"));
  logger.log_artifact({.name = "notes.txt", .content = "hello"}, {});
  EXPECT_EQ(artifact("notes.txt"), "hello");
  logger.end({.summary = logdir / "summary.json", .model = logdir / "best.pth"});
  logger.close();
  EXPECT_EQ(artifact("summary.json"), "{}");
  EXPECT_EQ(artifact("checkpoints/best.pth"), "weights");
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MlflowLoggerTest, TheModelCanStay) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "best.pth", "weights");
  MlflowLogger logger({.uri = server_.uri()}, {.log_model = false});
  logger.start({});
  logger.end({.model = folder / "best.pth"});
  EXPECT_TRUE(server_.artifacts().empty());
}

TEST_F(MlflowLoggerTest, SaysHowTheRunEnded) {
  const auto status_after = [&](const auto& ending) {
    MlflowLogger logger({.uri = server_.uri()});
    logger.start({});
    const std::string id = logger.run_id();
    ending(logger);
    return server_.status(id);
  };
  EXPECT_EQ(status_after([](auto& logger) { logger.end({.status = RunEnd::Status::kFailed}); }),
            "FAILED");
  EXPECT_EQ(
      status_after([](auto& logger) { logger.end({.status = RunEnd::Status::kInterrupted}); }),
      "KILLED");
  EXPECT_EQ(status_after([](auto& logger) { logger.close(); }), "FINISHED");
  EXPECT_EQ(status_after([](auto& logger) {
              try {
                throw std::runtime_error("x");
              } catch (const std::exception&) {
                logger.close();
              }
            }),
            "FAILED");
  try {
    throw std::runtime_error("an earlier run");
  } catch (const std::exception&) {  // the logger is made here
    EXPECT_EQ(status_after([](auto& logger) { logger.close(); }), "FINISHED");
  }
}

TEST_F(MlflowLoggerTest, WithoutCloseTheDestructorEndsTheRun) {
  {
    MlflowLogger logger({.uri = server_.uri()});
    logger.start({});
  }
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  try {
    MlflowLogger logger({.uri = server_.uri()});
    logger.start({});
    throw std::runtime_error("x");
  } catch (const std::exception&) {
  }
  EXPECT_EQ(server_.status("abc1"), "FAILED");
}

TEST_F(MlflowLoggerTest, AResumedRunGoesOn) {
  const TemporaryDirectory logdir;
  const auto run = [&](bool resumed, std::int64_t epochs) {
    MlflowLogger logger({.uri = server_.uri()});
    logger.start({.resumed = resumed,
                  .hparams = {{"num_epochs", epochs}, {"lr", 0.1}},
                  .logdir = logdir.path()});
    logger.log_metrics(loss(epochs, 1));
    logger.end({});
    return logger.run_id();
  };
  EXPECT_EQ(run(false, 1), "abc");
  EXPECT_EQ(run(true, 2), "abc");
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 2")));
  ASSERT_EQ(warnings_.size(), 1u) << "MLflow does not change parameters";
  EXPECT_THAT(warnings_[0], HasSubstr("num_epochs"));
  EXPECT_EQ(run(false, 1), "abc1") << "a new run in the same folder is another run";
}

TEST_F(MlflowLoggerTest, AResumedRunSendsWhatIsMissing) {
  const TemporaryDirectory logdir;
  {
    MlflowLogger logger({.uri = server_.uri()});
    logger.start({.logdir = logdir.path()});
    logger.log_metrics(loss(1, 1));
    logger.end({});
  }
  server_.forget_calls();
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.progress = {.epoch = 2},
                .resumed = true,
                .history = {{1, {{"train", {{"loss", 1}}}}},
                            {2, {{"train", {{"loss", 2}}}, {kEpochKey, {{"lr", 0.1}}}}}},
                .logdir = logdir.path()});
  logger.flush();
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 2")));
  EXPECT_THAT(server_.metrics(), Contains(Key("lr 2")));
  EXPECT_THAT(server_.metrics(), ::testing::Not(Contains(Key("train/loss 1"))));
  logger.end({});
}

TEST_F(MlflowLoggerTest, IfTheRunIsGoneAnotherOneIsStarted) {
  const TemporaryDirectory logdir;
  make_directories(logdir / "logs");
  write_file_atomically(logdir / "logs/mlflow.json",
                        fmt::format(R"({{"uri": "{}", "run_id": "deleted"}})", server_.uri()));
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.resumed = true, .logdir = logdir.path()});
  EXPECT_EQ(logger.run_id(), "abc");
  logger.end({});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("has no run 'deleted'"));
}

TEST_F(MlflowLoggerTest, ARunOfAnotherServerIsNotContinued) {
  const TemporaryDirectory logdir;
  make_directories(logdir / "logs");
  write_file_atomically(logdir / "logs/mlflow.json", R"({"uri": "http://other", "run_id": "x"})");
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.resumed = true, .logdir = logdir.path()});
  EXPECT_EQ(logger.run_id(), "abc");
  logger.end({});
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MlflowLoggerTest, MetricsWaitForAServerThatIsLost) {
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({});
  server_.set_failing("runs/log-batch");
  logger.log_metrics(loss(1, 1));
  logger.flush();
  logger.log_metrics(loss(2, 1));
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) logger.flush();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1))
      << "it does not ask again at once";
  server_.set_failing("");
  logger.end({});
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 1")));
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 2")));
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  ASSERT_EQ(warnings_.size(), 1u) << "one warning for all";
  EXPECT_THAT(warnings_[0], HasSubstr("out of disk; training goes on"));
}

TEST_F(MlflowLoggerTest, AServerThatComesLaterGetsEverything) {
  server_.set_failing("runs/create");
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.hparams = {{"lr", 0.1}}, .documents = {{"config", "a"}}});
  EXPECT_EQ(logger.run_id(), "");
  logger.log_metrics(loss(1, 1));
  server_.set_failing("");
  logger.end({});
  EXPECT_EQ(server_.parameters("abc").at("lr"), "0.1");
  EXPECT_EQ(artifact("documents/config.yml"), "a");
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 1")));
}

TEST_F(MlflowLoggerTest, AFailingArtifactStoreHoldsUpNoMetrics) {
  server_.set_failing("artifacts");
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({.hparams = {{"lr", 0.1}}, .documents = {{"config", "a"}, {"environment", "{}"}}});
  EXPECT_EQ(server_.parameters("abc").at("lr"), "0.1");
  logger.log_metrics(loss(1, 1));
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) logger.flush();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1))
      << "it does not send the documents again at once";
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 1")));
  server_.set_failing("");
  logger.end({});
  EXPECT_EQ(artifact("documents/config.yml"), "a") << "documents wait";
  EXPECT_EQ(artifact("documents/environment.json"), "{}");
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  ASSERT_EQ(warnings_.size(), 1u) << "one warning for all";
  EXPECT_THAT(warnings_[0], HasSubstr("out of disk; training goes on"));
}

TEST_F(MlflowLoggerTest, AFailingArtifactStoreDoesNotKeepTheRunRunning) {
  const TemporaryDirectory logdir;
  write_file_atomically(logdir / "summary.json", "{}");
  write_file_atomically(logdir / "best.pth", "weights");
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({});
  logger.log_metrics(loss(1, 1));
  server_.set_failing("artifacts");
  logger.end({.summary = logdir / "summary.json", .model = logdir / "best.pth"});
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 1")));
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_THAT(warnings_[1], HasSubstr("0 metrics and 2 artifacts were not sent"));
}

TEST_F(MlflowLoggerTest, WhatIsRefusedIsCounted) {
  MlflowLogger logger({.uri = server_.uri()});
  logger.start({});
  server_.set_refused("runs/log-batch");
  logger.log_metrics(loss(1, 1));
  logger.flush();
  server_.set_refused("artifacts");
  logger.log_artifact({.name = "a", .content = "b"}, {});
  server_.set_refused("");
  logger.log_metrics(loss(2, 1));
  logger.end({});
  EXPECT_THAT(server_.metrics(), Contains(Key("train/loss 2"))) << "later metrics are sent";
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_THAT(warnings_[1], HasSubstr("2 metrics and 1 artifacts were not sent"));
}

TEST(MlflowLoggerWithoutServer, OnlyWarns) {
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  {
    MlflowLogger logger({.uri = "http://127.0.0.1:1"});
    logger.start({});
    logger.log_metrics({.loader = "train", .metrics = {{"loss", 1}}});
    logger.flush();
    logger.end({});
    logger.close();
  }
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr("http://127.0.0.1:1"));
  EXPECT_THAT(warnings[1], HasSubstr("1 metrics and 0 artifacts were not sent"));
  EXPECT_THAT(warnings[1], HasSubstr("FINISHED"));
}

TEST(MlflowOfEnvironment, IsAddedOnceIfTheVariableIsSet) {
  EXPECT_EQ(mlflow_of_environment({}, {}), nullptr);
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  const process::Environment environment = {{"MLFLOW_TRACKING_URI", "databricks"}};
  ::setenv("MLFLOW_TRACKING_URI", "databricks", 1);
  EXPECT_EQ(mlflow_of_environment({}, environment), nullptr);
  EXPECT_EQ(warnings.size(), 1u);
  set_warning_handler(before);
  ::setenv("MLFLOW_TRACKING_URI", "http://host", 1);
  EXPECT_NE(mlflow_of_environment({}, environment), nullptr);
  const auto given = std::make_shared<MlflowLogger>(MlflowOptions{.uri = "http://other"});
  EXPECT_EQ(mlflow_of_environment({given}, environment), nullptr);
  ::unsetenv("MLFLOW_TRACKING_URI");
}

}  // namespace
}  // namespace lockstep
