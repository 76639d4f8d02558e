// A run of an MLflow server, over the server's REST interface.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/log/artifact.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/mlflow_names.h"
#include "lockstep/process/environment.h"

namespace lockstep {

// Where a run is logged. What is not given comes from MLflow's environment variables.
struct MlflowOptions {
  // The address of the server, "http://127.0.0.1:5000". It may have a user and a password. Default:
  // MLFLOW_TRACKING_URI.
  std::string uri = {};
  // Made if it does not exist. Default: MLFLOW_EXPERIMENT_NAME, else "lockstep".
  std::optional<std::string> experiment = {};
  // Default: MLFLOW_RUN_NAME, else the name of the run's folder, else the server chooses one.
  std::optional<std::string> run_name = {};
  std::optional<std::string> parent_run_id = {};  // this run is shown below that one
  // To log in to the server. Default: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
  // _PASSWORD.
  std::optional<std::string> token = {};
  std::optional<std::string> username = {};
  std::optional<std::string> password = {};
  double timeout = 10;                     // seconds for an answer
  std::optional<std::string> run_id = {};  // goes on with this run. Default: MLFLOW_RUN_ID
};

// The options with what the environment says. Throws ConfigError if there is no address, or one
// that is not of a web server.
MlflowOptions with_environment(MlflowOptions options, const process::Environment& environment);

// The server answered that it does not accept a request: another try would not help.
class MlflowRefusal : public Error {
  using Error::Error;
};

struct MlflowMetric {
  std::string name = {};
  double value = 0;
  std::int64_t step = 0;
  std::int64_t time = 0;  // in milliseconds since 1970
};

std::int64_t now_in_milliseconds();

// Every call that fails throws MlflowRefusal, or another Error if the server does not answer or has
// an error of its own. Such requests are repeated first, with pauses, for about a second if the
// server fails at once, and never for longer than two time limits.
class MlflowRun {
 public:
  // Starts a run, or goes on with options.run_id. `options` are those of with_environment().
  explicit MlflowRun(const MlflowOptions& options);
  ~MlflowRun();
  MlflowRun(const MlflowRun&) = delete;
  MlflowRun& operator=(const MlflowRun&) = delete;

  const std::string& id() const { return id_; }
  const std::string& uri() const { return uri_; }  // of the server, without the user

  // MLflow does not change a parameter that it has. A value of more than 6,000 bytes is cut. One
  // warning names the parameters that were cut, and one those that MLflow did not take.
  void log_parameters(const HParams& parameters);

  // Of a run that goes on: the last step of a metric that MLflow has. Nothing if it has none.
  std::optional<std::int64_t> last_step(const std::string& metric);

  // In requests of at most kMostMetrics.
  static constexpr std::size_t kMostMetrics = 1000;
  void log_metrics(std::span<const MlflowMetric> metrics);

  // Sends it through the server's artifact proxy (mlflow server --serve-artifacts, the default
  // since 2.0). If the server keeps artifacts elsewhere, one warning says so, and nothing is sent.
  void log_artifact(const Artifact& artifact);

  // status: "FINISHED", "FAILED" or "KILLED".
  void end(const char* status);

 private:
  class Server;

  void start(const MlflowOptions& options);
  void go_on(const std::string& id);
  void take_artifact_uri(const std::string& uri);

  std::unique_ptr<Server> server_;
  std::string uri_;
  std::string id_;
  std::optional<std::string> artifacts_;            // path of the run's artifacts in the proxy
  std::map<std::string, std::string> parameters_;   // of a run that goes on: those it has already
  std::map<std::string, std::int64_t> last_steps_;  // the same, of its metrics
  MlflowNames parameter_names_;
  MlflowNames metric_names_;
};

}  // namespace lockstep
