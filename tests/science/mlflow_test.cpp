// The client of science/tracker.h against a stand-in server on loopback that checks the requests.
#include <cmath>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/science/tracker.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Server : public ::testing::Test {
 protected:
  Server() {
    server_.Get("/api/2.0/mlflow/experiments/get-by-name", [this](const httplib::Request& request,
                                                                  httplib::Response& response) {
      experiment_ = request.get_param_value("experiment_name");
      if (known_) {
        response.set_content(R"({"experiment": {"experiment_id": "7"}})", "application/json");
      } else {
        response.status = 404;
        response.set_content(R"({"error_code": "RESOURCE_DOES_NOT_EXIST"})", "application/json");
      }
    });
    server_.Post(R"(/api/2\.0/mlflow/(.+))", [this](const httplib::Request& request,
                                                    httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      const std::string name = request.matches[1];
      authorization_ = request.get_header_value("Authorization");
      if (request.get_header_value("Content-Type") != "application/json") {
        response.status = 415;
        return;
      }
      if (name == fails_) {
        response.status = 500;
        response.set_content("out of disk", "text/plain");
        return;
      }
      calls_.emplace_back(name, json::parse(request.body));
      if (name == "experiments/create")
        response.set_content(R"({"experiment_id": "8"})", "application/json");
      if (name == "runs/create")
        response.set_content(
            json({{"run", {{"info", {{"run_id", "abc"}, {"artifact_uri", artifact_uri_}}}}}})
                .dump(),
            "application/json");
    });
    server_.Put(R"(/api/2\.0/mlflow-artifacts/artifacts/(.+))",
                [this](const httplib::Request& request, httplib::Response&) {
                  const std::lock_guard lock(mutex_);
                  artifacts_[request.matches[1]] = request.body;
                });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    for (int i = 0; i < 5000 && !server_.is_running(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~Server() override {
    server_.stop();
    thread_.join();
  }

  MlflowOptions options() const {
    return {.uri = fmt::format("http://127.0.0.1:{}/", port_),
            .experiment = "my experiment",
            .run_name = "first"};
  }
  json body_of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [called, body] : calls_) {
      if (called == name) return body;
    }
    return {};
  }

  mutable std::mutex mutex_;  // for members that both threads use
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  bool known_ = true;
  std::string fails_;
  std::string artifact_uri_ = "mlflow-artifacts:/7/abc/artifacts";
  std::string authorization_;
  std::string experiment_;
  std::vector<std::pair<std::string, json>> calls_;
  std::map<std::string, std::string> artifacts_;
};

TEST_F(Server, GetsParametersMetricsAndPictures) {
  MlflowTracker tracker(options());
  EXPECT_EQ(experiment_, "my experiment");
  EXPECT_EQ(tracker.run_id(), "abc");
  EXPECT_EQ(body_of("runs/create")["experiment_id"], "7");
  EXPECT_EQ(body_of("runs/create")["tags"][0]["value"], "first");
  EXPECT_EQ(body_of("runs/create")["run_name"], "first");
  EXPECT_GT(body_of("runs/create")["start_time"].get<std::int64_t>(), 1'600'000'000'000);
  tracker.log_parameters({{"model - lr", 0.5}});
  EXPECT_EQ(body_of("runs/log-batch"),
            json({{"run_id", "abc"},
                  {"params", json::array({{{"key", "model - lr"}, {"value", "0.5"}}})}}));
  calls_.clear();
  tracker.log_metrics({{.name = "eval: loss", .value = 1.25, .step = 3}});
  const json metric = body_of("runs/log-batch")["metrics"][0];
  EXPECT_EQ(metric["key"], "eval_ loss") << "a name that MLflow accepts";
  EXPECT_EQ(metric["value"], 1.25);
  EXPECT_EQ(metric["step"], 3);
  EXPECT_GT(metric["timestamp"].get<std::int64_t>(), 1'600'000'000'000);
  tracker.log_artifact("a plot.svg", "<svg/>");
  EXPECT_EQ(artifacts_.at("7/abc/artifacts/a plot.svg"), "<svg/>");
  tracker.finish();
  EXPECT_EQ(body_of("runs/update")["status"], "FINISHED");
}

TEST_F(Server, AnExperimentIsMadeWhereThereIsNone) {
  known_ = false;
  MlflowTracker tracker(options());
  EXPECT_EQ(body_of("experiments/create")["name"], "my experiment");
  EXPECT_EQ(body_of("runs/create")["experiment_id"], "8");
  tracker.finish();
}

TEST_F(Server, ARunThatIsNotFinishedHasFailed) {
  { MlflowTracker tracker(options()); }
  EXPECT_EQ(body_of("runs/update")["status"], "FAILED");
}

TEST_F(Server, WhatItRefusesIsTold) {
  MlflowTracker tracker(options());
  fails_ = "runs/log-batch";
  try {
    tracker.log_metrics({{.name = "loss", .value = 1}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("/api/2.0/mlflow/runs/log-batch: answers 500: out of disk"));
  }
  fails_.clear();
  tracker.log_metrics({{.name = "a", .value = NAN}, {.name = "b", .value = -INFINITY}});
  EXPECT_EQ(body_of("runs/log-batch")["metrics"][0]["value"], "NaN");
  EXPECT_EQ(body_of("runs/log-batch")["metrics"][1]["value"], "-Infinity");
  tracker.finish();
}

TEST_F(Server, GetsNoMoreAtATimeThanItTakes) {
  MlflowTracker tracker(options());
  HParams parameters;
  for (int i = 0; i < 250; ++i) parameters[fmt::format("p{}", i)] = std::int64_t{i};
  tracker.log_parameters(parameters);
  tracker.log_metrics(std::vector<TrackedMetric>(2001, {.name = "m", .value = 1}));
  std::vector<std::size_t> sizes;
  for (const auto& [name, body] : calls_) {
    if (name == "runs/log-batch") {
      sizes.push_back(body.contains("params") ? body["params"].size() : body["metrics"].size());
    }
  }
  EXPECT_THAT(sizes, ::testing::ElementsAre(100, 100, 50, 1000, 1000, 1));
  tracker.finish();
}

TEST_F(Server, ArtifactsGoWhereItSays) {
  artifact_uri_ = "mlflow-artifacts://127.0.0.1:5000/custom/place";
  MlflowTracker tracker(options());
  tracker.log_artifact("a.svg", "<svg/>");
  EXPECT_EQ(artifacts_.at("custom/place/a.svg"), "<svg/>");
  artifact_uri_ = "s3://bucket/7";
  MlflowTracker other(options());  // warns
  other.log_artifact("b.svg", "<svg/>");
  EXPECT_EQ(artifacts_.size(), 1u);
  tracker.finish();
  other.finish();
}

TEST_F(Server, GetsTheUserAndMessagesDoNotShowIt) {
  MlflowOptions with_token = options();
  with_token.token = "t0ken";
  MlflowTracker(with_token).finish();
  EXPECT_EQ(authorization_, "Bearer t0ken");
  MlflowOptions with_user = options();
  with_user.uri = fmt::format("http://me:se%20cret@127.0.0.1:{}", port_);
  MlflowTracker tracker(with_user);
  EXPECT_EQ(authorization_, "Basic bWU6c2UgY3JldA==");
  EXPECT_EQ(tracker.name(), fmt::format("MLflow at http://127.0.0.1:{}", port_));
  tracker.finish();
}

TEST_F(Server, ARunCanBeBelowAnother) {
  MlflowOptions nested = options();
  nested.parent_run_id = "parent";
  MlflowTracker(nested).finish();
  EXPECT_EQ(body_of("runs/create")["tags"][1],
            json({{"key", "mlflow.parentRunId"}, {"value", "parent"}}));
}

TEST_F(Server, ThatIsNotMlflowIsNamed) {
  server_.Post("/other/api/2.0/mlflow/runs/create",
               [](const httplib::Request&, httplib::Response& response) {
                 response.set_content("[]", "application/json");
               });
  server_.Get("/other/api/2.0/mlflow/experiments/get-by-name",
              [](const httplib::Request&, httplib::Response& response) {
                response.set_content("<html>welcome</html>", "text/html");
              });
  MlflowOptions other = options();
  other.uri += "other";
  EXPECT_THROW(MlflowTracker{other}, Error);
}

TEST_F(Server, HearsNothingOfOtherRanks) {
  const test::Rank rank(1, 2);
  MlflowTracker tracker(options());
  tracker.log_metrics({{.name = "m", .value = 1}});
  tracker.log_artifact("a", "b");
  tracker.finish();
  EXPECT_TRUE(calls_.empty());
}

TEST(Mlflow, WithoutAServerItThrows) {
  try {
    MlflowTracker tracker({.uri = "http://127.0.0.1:1", .timeout = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("MLflow at http://127.0.0.1:1/"));
  }
}

}  // namespace
}  // namespace lockstep::science
