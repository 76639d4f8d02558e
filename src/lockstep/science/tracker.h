// Trackers store an experiment's parameters, metrics and pictures. If a launcher started several
// processes, only the trackers of rank 0 do anything.
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
  // Stores a file of this name and content.
  virtual void log_artifact(const std::string& name, const std::string& content) = 0;
  // To be called when the run has ended well.
  virtual void finish() = 0;
};

struct FileTrackerOptions {
  std::filesystem::path folder;
  bool append = false;  // to the parameters and metrics that are there; else they are replaced
};

// Writes params.json, metrics.csv (name, step, value) and artifacts into a folder. Other files in
// the folder stay.
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
  std::string experiment = "lockstep";  // made if it does not exist
  std::string run_name = "run";
  std::optional<std::string> parent_run_id = {};  // this run is shown below that one
  // To log in to the server. Default: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
  // _PASSWORD.
  std::optional<std::string> token = {};
  std::optional<std::string> username = {};
  std::optional<std::string> password = {};
  double timeout = 10;  // seconds for an answer
};

// Talks to an MLflow server over its REST interface. If a request fails, it throws Error with the
// address and the server's answer.
class MlflowTracker : public Tracker {
 public:
  // Starts a run.
  explicit MlflowTracker(MlflowOptions options);
  // Ends the run as failed, unless finish() was called.
  ~MlflowTracker() override;

  std::string name() const override;
  void log_parameters(const HParams& parameters) override;
  void log_metrics(const std::vector<TrackedMetric>& metrics) override;
  // Sends it through the server's artifact proxy (mlflow server --serve-artifacts, the default
  // since 2.0). If the server keeps artifacts elsewhere, one warning says so, and no artifacts are
  // sent.
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override;

  const std::string& run_id() const { return run_id_; }  // "" on other ranks than 0

 private:
  class Server;

  void end(const char* status);

  std::unique_ptr<Server> server_;  // none on other ranks than 0
  std::string run_id_;
  std::optional<std::string> artifacts_;  // path of the run's artifacts in the proxy
  bool ended_ = false;
};

}  // namespace lockstep::science
