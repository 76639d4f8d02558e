// Where an experiment's parameters, metrics and pictures go.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/log/logger.h"

namespace lockstep::science {

class Tracker {
 public:
  virtual ~Tracker() = default;

  virtual void log_parameter(const std::string& name, const HParam& value) = 0;
  virtual void log_metric(const std::string& name, double value, std::int64_t step = 0) = 0;
  // A file's content under a name.
  virtual void log_artifact(const std::string& name, const std::string& content) = 0;
  // The run is over.
  virtual void finish() = 0;
};

// Writes params.json, metrics.csv (name, step, value) and artifacts into a folder. What is there
// under other names stays.
class FileTracker : public Tracker {
 public:
  explicit FileTracker(std::filesystem::path folder);

  void log_parameter(const std::string& name, const HParam& value) override;
  void log_metric(const std::string& name, double value, std::int64_t step) override;
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void write() const;

  std::filesystem::path folder_;
  HParams parameters_;
  std::string metrics_ = "name,step,value\n";
};

struct MlflowOptions {
  std::string uri;                      // of the server, "http://127.0.0.1:5000"
  std::string experiment = "lockstep";  // made where there is none
  std::string run_name = "run";
  double timeout = 10;  // seconds for an answer
};

// Talks to an MLflow server over its REST interface. Throws Error, naming the address and what the
// server said, where it does not do as asked.
class MlflowTracker : public Tracker {
 public:
  // Starts a run.
  explicit MlflowTracker(MlflowOptions options);
  // Ends it as failed, unless finish() was called.
  ~MlflowTracker() override;

  void log_parameter(const std::string& name, const HParam& value) override;
  void log_metric(const std::string& name, double value, std::int64_t step) override;
  // By the server's artifact proxy (mlflow server --serve-artifacts, the default since 2.0).
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override;

  const std::string& run_id() const { return run_id_; }

 private:
  void end(const char* status);

  MlflowOptions options_;
  std::string experiment_id_;
  std::string run_id_;
  bool ended_ = false;
};

}  // namespace lockstep::science
