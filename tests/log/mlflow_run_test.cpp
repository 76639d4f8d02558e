#include "lockstep/log/mlflow_run.h"

#include <chrono>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "tests/data/error_text.h"
#include "tests/log/mlflow_server.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class MlflowRunTest : public ::testing::Test {
 protected:
  MlflowRunTest()
      : before_(
            set_warning_handler([this](const std::string& text) { warnings_.push_back(text); })) {}
  ~MlflowRunTest() override { set_warning_handler(before_); }

  MlflowOptions options() const {
    return {.uri = server_.uri(), .experiment = "my experiment", .run_name = "first"};
  }

  MlflowServer server_;
  std::vector<std::string> warnings_;
  WarningHandler before_;
};

TEST_F(MlflowRunTest, SendsParametersMetricsAndFiles) {
  MlflowRun run(options());
  EXPECT_EQ(server_.experiment(), "my experiment");
  EXPECT_EQ(run.id(), "abc");
  const json created = server_.body_of("runs/create");
  EXPECT_EQ(created["experiment_id"], "7");
  EXPECT_EQ(created["run_name"], "first");
  EXPECT_GT(created["start_time"].get<std::int64_t>(), 1'600'000'000'000);
  run.log_parameters({{"model - lr", 0.5}});
  EXPECT_THAT(server_.parameters("abc"), ElementsAre(Pair("model - lr", "0.5")));
  server_.forget_calls();
  const std::vector<MlflowMetric> metrics = {{.name = "a", .value = 1.25, .step = 3, .time = 9},
                                             {.name = "b", .value = NAN},
                                             {.name = "c", .value = -INFINITY}};
  run.log_metrics(metrics);
  EXPECT_EQ(server_.body_of("runs/log-batch")["metrics"][0],
            json({{"key", "a"}, {"value", 1.25}, {"timestamp", 9}, {"step", 3}}));
  EXPECT_EQ(server_.metrics().at("b 0"), "NaN");
  EXPECT_EQ(server_.metrics().at("c 0"), "-Infinity");
  run.log_artifact({.name = "folder/a plot.svg", .content = "<svg/>"});
  EXPECT_EQ(server_.artifacts().at("7/abc/artifacts/folder/a plot.svg"), "<svg/>");
  const TemporaryDirectory folder;
  write_file_atomically(folder / "weights", std::string(100'000, 'w'));
  run.log_artifact({.path = folder / "weights"});
  EXPECT_EQ(server_.artifacts().at("7/abc/artifacts/weights"), std::string(100'000, 'w'));
  run.end("FINISHED");
  EXPECT_EQ(server_.status("abc"), "FINISHED");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MlflowRunTest, TriesAgainIfTheServerIsBusy) {
  MlflowRun run(options());
  server_.set_failures(2);
  run.log_parameters({{"a", 1.0}});
  EXPECT_THAT(server_.parameters("abc"), ElementsAre(Pair("a", "1")));
}

TEST_F(MlflowRunTest, GivesUpAfterAFewTries) {
  MlflowRun run(options());
  server_.set_failing("runs/log-batch");
  const std::vector<MlflowMetric> metrics = {{.name = "a"}};
  const std::string text = error_text<Error>([&] { run.log_metrics(metrics); });
  EXPECT_THAT(text, HasSubstr("/api/2.0/mlflow/runs/log-batch: answers 500: out of disk"));
}

TEST_F(MlflowRunTest, ARefusalIsNotTriedAgain) {
  MlflowRun run(options());
  server_.set_refused("runs/log-batch");
  const std::vector<MlflowMetric> metrics = {{.name = "a"}};
  EXPECT_THROW(run.log_metrics(metrics), MlflowRefusal);
}

TEST_F(MlflowRunTest, LongParametersAreCutWithOneWarning) {
  MlflowRun run(options());
  run.log_parameters({{"long", std::string(6001, 'x')},
                      {"longer", std::string(5999, 'x') + "ü"},
                      {"refused", std::int64_t{1}},
                      {"short", std::int64_t{2}}});
  EXPECT_EQ(server_.parameters("abc").at("long"), std::string(6000, 'x'));
  EXPECT_EQ(server_.parameters("abc").at("longer"), std::string(5999, 'x')) << "whole characters";
  EXPECT_EQ(server_.parameters("abc").at("short"), "2") << "although another one was refused";
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_THAT(warnings_[0], HasSubstr("long, longer"));
  EXPECT_THAT(warnings_[1], HasSubstr(": refused"));
}

TEST_F(MlflowRunTest, GoesOnWithARun) {
  MlflowRun(options()).log_parameters({{"a", 1.0}, {"b", 1.0}});
  MlflowOptions again = options();
  again.run_id = "abc";
  server_.forget_calls();
  MlflowRun run(again);
  EXPECT_EQ(run.id(), "abc");
  EXPECT_EQ(server_.body_of("runs/update")["status"], "RUNNING");
  EXPECT_TRUE(server_.body_of("runs/create").is_null());
  run.log_parameters({{"a", 1.0}, {"b", 2.0}, {"c", 3.0}});
  EXPECT_THAT(server_.parameters("abc"),
              ElementsAre(Pair("a", "1"), Pair("b", "1"), Pair("c", "3")));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr(": b"));
  again.run_id = "another";
  EXPECT_THROW(MlflowRun{again}, MlflowRefusal);
}

TEST_F(MlflowRunTest, SendsNoMoreAtATimeThanMlflowTakes) {
  MlflowRun run(options());
  HParams parameters;
  for (int i = 0; i < 250; ++i) parameters[fmt::format("p{}", i)] = std::int64_t{i};
  run.log_parameters(parameters);
  run.log_metrics(std::vector<MlflowMetric>(2001, {.name = "m", .value = 1}));
  std::vector<std::size_t> sizes;
  for (const auto& [name, body] : server_.calls()) {
    if (name == "runs/log-batch") {
      sizes.push_back(body.contains("params") ? body["params"].size() : body["metrics"].size());
    }
  }
  EXPECT_THAT(sizes, ElementsAre(100, 100, 50, 1000, 1000, 1));
}

TEST_F(MlflowRunTest, ArtifactsGoWhereTheServerSays) {
  server_.set_artifact_uri("mlflow-artifacts://127.0.0.1:5000/custom/place");
  MlflowRun(options()).log_artifact({.name = "a.svg", .content = "<svg/>"});
  EXPECT_EQ(server_.artifacts().at("custom/place/a.svg"), "<svg/>");
  server_.set_artifact_uri("s3://bucket/7");
  MlflowRun(options()).log_artifact({.name = "b.svg", .content = "<svg/>"});
  EXPECT_EQ(server_.artifacts().size(), 1u);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("s3://bucket/7"));
}

TEST_F(MlflowRunTest, ThatIsNotMlflowIsNamed) {
  server_.http().Get("/other/api/2.0/mlflow/experiments/get-by-name",
                     [](const httplib::Request&, httplib::Response& response) {
                       response.set_content("<html>welcome</html>", "text/html");
                     });
  MlflowOptions other = options();
  other.uri += "/other";
  EXPECT_THAT(error_text<MlflowRefusal>([&] { MlflowRun run(other); }), HasSubstr("welcome"));
}

TEST(MlflowOptions, TakesMlflowsVariables) {
  const process::Environment environment = {{"MLFLOW_TRACKING_URI", "http://me:secret@host:5000/"},
                                            {"MLFLOW_EXPERIMENT_NAME", "mnist"},
                                            {"MLFLOW_RUN_ID", "abc"},
                                            {"MLFLOW_RUN_NAME", "first"},
                                            {"MLFLOW_TRACKING_TOKEN", "t0ken"}};
  const MlflowOptions taken = with_environment({}, environment);
  EXPECT_EQ(taken.uri, "http://host:5000");
  EXPECT_EQ(taken.username, "me");
  EXPECT_EQ(taken.password, "secret");
  EXPECT_EQ(taken.experiment, "mnist");
  EXPECT_EQ(taken.run_id, "abc");
  EXPECT_EQ(taken.run_name, "first");
  EXPECT_EQ(taken.token, "t0ken");
  const MlflowOptions given = with_environment(
      {.uri = "https://other", .experiment = "x", .run_name = "z", .run_id = "y"}, environment);
  EXPECT_EQ(given.uri, "https://other");
  EXPECT_EQ(given.experiment, "x");
  EXPECT_EQ(given.run_id, "y");
  EXPECT_EQ(given.run_name, "z");
  EXPECT_EQ(with_environment({.uri = "http://a"}, {}).experiment, "lockstep");
}

TEST(MlflowOptions, NeedsTheAddressOfAServer) {
  EXPECT_THAT(error_text<ConfigError>([] { with_environment({}, {}); }),
              HasSubstr("MLFLOW_TRACKING_URI: expected"));
  EXPECT_THAT(error_text<ConfigError>([] { with_environment({.uri = "file:./mlruns"}, {}); }),
              HasSubstr("got 'file:./mlruns'"));
}

TEST(MlflowRunWithoutServer, ThrowsSoon) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(error_text<Error>([] { MlflowRun run({.uri = "http://127.0.0.1:1"}); }),
              HasSubstr("MLflow at http://127.0.0.1:1/"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

}  // namespace
}  // namespace lockstep
