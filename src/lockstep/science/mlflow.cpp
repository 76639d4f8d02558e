#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/process/environment.h"
#include "lockstep/science/tracker.h"

namespace lockstep::science {

MlflowTracker::MlflowTracker(MlflowOptions options) : exceptions_(std::uncaught_exceptions()) {
  if (!process::is_primary_process()) return;
  run_ = std::make_unique<MlflowRun>(
      with_environment(std::move(options), process::current_environment()));
}

MlflowTracker::~MlflowTracker() {
  if (ended_ || run_ == nullptr) return;
  try {
    run_->end(std::uncaught_exceptions() > exceptions_ ? "FAILED" : "FINISHED");
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

std::string MlflowTracker::name() const {
  return run_ == nullptr ? "MLflow" : "MLflow at " + run_->uri();
}

void MlflowTracker::log_parameters(const HParams& parameters) {
  if (run_ != nullptr) run_->log_parameters(parameters);
}

void MlflowTracker::log_metrics(const std::vector<TrackedMetric>& metrics) {
  if (run_ == nullptr) return;
  std::vector<MlflowMetric> timed;
  const std::int64_t time = now_in_milliseconds();
  for (const TrackedMetric& metric : metrics) {
    timed.push_back(
        {.name = metric.name, .value = metric.value, .step = metric.step, .time = time});
  }
  run_->log_metrics(timed);
}

void MlflowTracker::log_artifact(const std::string& name, const std::string& content) {
  if (run_ != nullptr) run_->log_artifact({.name = name, .content = content});
}

void MlflowTracker::finish() {
  if (ended_ || run_ == nullptr) return;
  ended_ = true;
  run_->end("FINISHED");
}

}  // namespace lockstep::science
