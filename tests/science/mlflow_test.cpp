// The tracker of science/tracker.h against a stand-in server on loopback. The requests themselves
// are tested with log/mlflow_run.h.
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/science/tracker.h"
#include "tests/log/mlflow_server.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;

MlflowOptions options_for(const MlflowServer& server) {
  return {.uri = server.uri() + "/", .experiment = "my experiment", .run_name = "first"};
}

TEST(Mlflow, GetsParametersMetricsAndPictures) {
  const MlflowServer server;
  MlflowTracker tracker(options_for(server));
  EXPECT_EQ(server.experiment(), "my experiment");
  EXPECT_EQ(tracker.run_id(), "abc");
  EXPECT_EQ(tracker.name(), "MLflow at " + server.uri());
  tracker.log_parameters({{"model - lr", 0.5}});
  EXPECT_EQ(server.parameters("abc").at("model - lr"), "0.5");
  tracker.log_metrics({{.name = "eval: loss", .value = 1.25, .step = 3}});
  EXPECT_EQ(server.metrics().at("eval_ loss 3"), 1.25) << "a name that MLflow accepts";
  tracker.log_artifact("a plot.svg", "<svg/>");
  EXPECT_EQ(server.artifacts().at("7/abc/artifacts/a plot.svg"), "<svg/>");
  tracker.finish();
  EXPECT_EQ(server.status("abc"), "FINISHED");
}

TEST(Mlflow, AnExperimentIsMadeWhereThereIsNone) {
  MlflowServer server;
  server.set_known(false);
  MlflowTracker tracker(options_for(server));
  EXPECT_EQ(server.body_of("experiments/create")["name"], "my experiment");
  EXPECT_EQ(server.body_of("runs/create")["experiment_id"], "8");
}

TEST(Mlflow, OnlyAnExceptionMakesItAFailure) {
  const MlflowServer server;
  { const MlflowTracker tracker(options_for(server)); }
  EXPECT_EQ(server.status("abc"), "FINISHED");
  try {
    const MlflowTracker tracker(options_for(server));
    throw std::runtime_error("x");
  } catch (const std::exception&) {
  }
  EXPECT_EQ(server.status("abc1"), "FAILED");
}

TEST(Mlflow, LearnsTheUserAndMessagesDoNotShowIt) {
  const MlflowServer server;
  MlflowOptions with_token = options_for(server);
  with_token.token = "t0ken";
  MlflowTracker(with_token).finish();
  EXPECT_EQ(server.authorization(), "Bearer t0ken");
  MlflowOptions with_user = options_for(server);
  with_user.uri.insert(std::string("http://").size(), "me:se%20cret@");
  MlflowTracker tracker(with_user);
  EXPECT_EQ(server.authorization(), "Basic bWU6c2UgY3JldA==");
  EXPECT_EQ(tracker.name(), "MLflow at " + server.uri());
}

TEST(Mlflow, ARunCanBeBelowAnother) {
  const MlflowServer server;
  MlflowOptions nested = options_for(server);
  nested.parent_run_id = "parent";
  MlflowTracker(nested).finish();
  EXPECT_THAT(
      server.body_of("runs/create")["tags"],
      ::testing::Contains(nlohmann::json({{"key", "mlflow.parentRunId"}, {"value", "parent"}})));
}

TEST(Mlflow, HearsNothingOfOtherRanks) {
  const MlflowServer server;
  const test::Rank rank(1, 2);
  MlflowTracker tracker(options_for(server));
  tracker.log_metrics({{.name = "m", .value = 1}});
  tracker.log_artifact("a", "b");
  tracker.finish();
  EXPECT_EQ(tracker.run_id(), "");
  EXPECT_TRUE(server.calls().empty());
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
