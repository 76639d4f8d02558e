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
      const std::string name = request.matches[1];
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
        response.set_content(R"({"run": {"info": {"run_id": "abc"}}})", "application/json");
    });
    server_.Put(R"(/api/2\.0/mlflow-artifacts/artifacts/(.+))",
                [this](const httplib::Request& request, httplib::Response&) {
                  artifacts_[request.matches[1]] = request.body;
                });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
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
    for (const auto& [called, body] : calls_) {
      if (called == name) return body;
    }
    return {};
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  bool known_ = true;
  std::string fails_;
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
  tracker.log_parameter("model - lr", 0.5);
  EXPECT_EQ(body_of("runs/log-parameter"),
            json({{"run_id", "abc"}, {"key", "model - lr"}, {"value", "0.5"}}));
  tracker.log_metric("eval: loss", 1.25, 3);
  const json metric = body_of("runs/log-metric");
  EXPECT_EQ(metric["key"], "eval_ loss") << "a name that MLflow takes";
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
  fails_ = "runs/log-metric";
  try {
    tracker.log_metric("loss", 1, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("/api/2.0/mlflow/runs/log-metric: answers 500: out of disk"));
  }
  fails_.clear();
  tracker.log_metric("loss", NAN, 0);
  EXPECT_EQ(body_of("runs/log-metric")["value"], "NaN");
  tracker.finish();
}

TEST(Mlflow, NobodyThere) {
  try {
    MlflowTracker tracker({.uri = "http://127.0.0.1:1", .timeout = 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("MLflow at http://127.0.0.1:1/"));
  }
}

}  // namespace
}  // namespace lockstep::science
