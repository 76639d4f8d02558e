// Logs a run to an MLflow server.
//
//   MLFLOW_TRACKING_URI=http://127.0.0.1:5000 lockstep run -C mnist.yml
//
// A run has one MLflow run. Metrics are named "train/loss", and "lr" if they belong to no loader,
// with the epoch as the step; batches, if the run logs them, "train/loss.batch". Further slashes in
// a name become dots ("valid/auc.class_03"), because MLflow's file store keeps a file per metric
// and cannot have "loss" and "loss/std". Parameters are the run's hyper-parameters. Artifacts are
// its documents (the config), summary.json, the checkpoint of the best epoch, and what callbacks
// log.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/log/logger.h"
#include "lockstep/log/mlflow_run.h"

namespace lockstep {

struct MlflowLoggerOptions {
  bool log_model = true;  // sends the checkpoint of the best epoch at the end
};

// Training never ends because of the server, and does not wait long for it: a request is repeated
// for a short time, then one warning says what is wrong. Metrics are kept and sent later, and the
// next attempt is made when the run has gone on for 20 times as long as it has waited. If only the
// store of the artifacts fails, metrics and the status are sent all the same. close() warns of what
// could not be sent.
//
// The MLflow run is FINISHED, or FAILED if an exception ended the training, or KILLED after a
// signal. A run that is resumed in its folder goes on with its MLflow run, whose id is in
// logs/mlflow.json. It sends the metrics of finished epochs that MLflow does not have. Points of
// epochs that are trained again are then in MLflow twice, with equal values.
class MlflowLogger : public Logger {
 public:
  // Nothing is sent before start(). Throws ConfigError if there is no address of a server.
  explicit MlflowLogger(MlflowOptions options = {}, MlflowLoggerOptions logger_options = {});
  ~MlflowLogger() override;  // calls close()
  MlflowLogger(const MlflowLogger&) = delete;
  MlflowLogger& operator=(const MlflowLogger&) = delete;

  void start(const RunStart& run) override;
  void log_metrics(const Record& record) override;  // they are sent by flush()
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  void log_artifact(const Artifact& artifact, const Progress& progress) override;
  void flush() override;
  void end(const RunEnd& run) override;
  // Without end(): the run is FINISHED, or FAILED if an exception is under way.
  void close() override;

  // "" before start(), and as long as the server has not answered.
  std::string run_id() const { return run_ != nullptr ? run_->id() : run_id_; }

 private:
  struct Unsent {
    std::int64_t metrics = 0;
    std::int64_t artifacts = 0;
  };
  enum class Sending { kSent, kRefused, kFailed };

  bool try_to(const std::function<void(MlflowRun&)>& work);
  void open();
  void introduce();
  void take_missing();
  void send_documents();
  Sending try_artifact(const Artifact& artifact);
  void send_artifact(const Artifact& artifact);
  void flush_at_last();
  void lose(const std::string& why);
  void finish(const char* status);

  MlflowOptions options_;
  MlflowLoggerOptions logger_options_;
  RunStart start_;
  std::string run_id_;  // of the MLflow run to go on with; "": a new one
  std::unique_ptr<MlflowRun> run_;
  std::vector<MlflowMetric> metrics_;  // not sent yet
  Unsent unsent_;
  std::chrono::steady_clock::time_point next_try_ = {};
  std::chrono::steady_clock::time_point next_artifact_ = {};
  bool warned_ = false;
  bool started_ = false;
  bool is_introduced_ = false;  // the MLflow run has the run's parameters
  int exceptions_ = 0;          // under way when the logger was made
  std::exception_ptr handled_;  // the exception that was handled when this was made
  pid_t owner_ = 0;             // a forked child must not end the run
};

// A logger for a run whose environment has MLFLOW_TRACKING_URI, unless one of `loggers` is an
// MlflowLogger. Null if there is nothing to do. Warns if the variable is not the address of a
// server.
std::shared_ptr<MlflowLogger> mlflow_of_environment(
    const std::vector<std::shared_ptr<Logger>>& loggers, const process::Environment& environment);

}  // namespace lockstep
