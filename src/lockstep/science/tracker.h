// Where an experiment's parameters, metrics and pictures go. Of the processes that a launcher
// started, only rank 0's trackers do anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/log/logger.h"

namespace lockstep::science {

struct TrackedMetric {
  std::string name;
  double value = 0;
  std::int64_t step = 0;
};

class Tracker {
 public:
  virtual ~Tracker() = default;

  virtual std::string name() const = 0;  // for messages
  virtual void log_parameters(const HParams& parameters) = 0;
  virtual void log_metrics(const std::vector<TrackedMetric>& metrics) = 0;
  // A file's content under a name.
  virtual void log_artifact(const std::string& name, const std::string& content) = 0;
  // The run is over.
  virtual void finish() = 0;
};

struct FileTrackerOptions {
  std::filesystem::path folder;
  bool append = false;  // to the parameters and metrics of an earlier one; else they are replaced
};

// Writes params.json, metrics.csv (name, step, value) and artifacts into a folder. What is there
// under other names stays.
class FileTracker : public Tracker {
 public:
  explicit FileTracker(FileTrackerOptions options);
  explicit FileTracker(std::filesystem::path folder)
      : FileTracker(FileTrackerOptions{.folder = std::move(folder)}) {}

  std::string name() const override { return "files in " + options_.folder.string(); }
  void log_parameters(const HParams& parameters) override;
  void log_metrics(const std::vector<TrackedMetric>& metrics) override;
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override {}

  const std::filesystem::path& folder() const { return options_.folder; }

 private:
  FileTrackerOptions options_;
  bool is_active_;
};

struct MlflowOptions {
  std::string uri;                      // of the server, "http://127.0.0.1:5000"
  std::string experiment = "lockstep";  // made where there is none
  std::string run_name = "run";
  std::optional<std::string> parent_run_id = {};  // shown below that run
  // Who asks. Default: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD.
  std::optional<std::string> token = {};
  std::optional<std::string> username = {};
  std::optional<std::string> password = {};
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

  std::string name() const override;
  void log_parameters(const HParams& parameters) override;
  void log_metrics(const std::vector<TrackedMetric>& metrics) override;
  // By the server's artifact proxy (mlflow server --serve-artifacts, the default since 2.0). Where
  // the server keeps artifacts elsewhere, a warning says so once, and none are sent.
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override;

  const std::string& run_id() const { return run_id_; }  // "" on other ranks than 0

 private:
  class Server;

  void end(const char* status);

  std::unique_ptr<Server> server_;  // none on other ranks than 0
  std::string run_id_;
  std::optional<std::string> artifacts_;  // path of the run's in the proxy
  bool ended_ = false;
};

}  // namespace lockstep::science
