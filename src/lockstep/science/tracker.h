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
#include "lockstep/log/mlflow_run.h"

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

using lockstep::MlflowOptions;

// An experiment as a run of an MLflow server. If a request fails, it is repeated for a short time,
// and then throws Error with the address and the server's answer.
class MlflowTracker : public Tracker {
 public:
  // Starts a run, or goes on with options.run_id. Throws ConfigError if there is no address.
  explicit MlflowTracker(MlflowOptions options = {});
  // Ends the run, unless finish() was called: as failed if an exception is under way.
  ~MlflowTracker() override;

  std::string name() const override;
  void log_parameters(const HParams& parameters) override;
  void log_metrics(const std::vector<TrackedMetric>& metrics) override;
  // Needs the server's artifact proxy (MlflowRun::log_artifact).
  void log_artifact(const std::string& name, const std::string& content) override;
  void finish() override;

  std::string run_id() const { return run_ != nullptr ? run_->id() : ""; }  // "" on other ranks

 private:
  std::unique_ptr<MlflowRun> run_;  // none on other ranks than 0
  int exceptions_;                  // under way when the tracker was made
  bool ended_ = false;
};

}  // namespace lockstep::science
