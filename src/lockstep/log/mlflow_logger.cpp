#include "lockstep/log/mlflow_logger.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

// A run waits for a server that does not answer for at most one part in 20 of its time, and for an
// artifact store that fails for another one.
constexpr int kWaitShare = 20;
constexpr std::chrono::seconds kShortestPause(1);
// Metrics that wait for the server. A run would need hours to collect as many.
constexpr std::size_t kMostWaiting = 200'000;

// When to try again after an attempt that has failed just now.
Clock::time_point next_after(Clock::time_point began) {
  const auto now = Clock::now();
  return now + std::max<Clock::duration>(kShortestPause, kWaitShare * (now - began));
}

// The documents of a config's run have no extension, but MLflow shows files by theirs.
std::string document_name(const std::string& name, const std::string& content) {
  if (name == "config") return "documents/config.yml";
  const bool is_json = content.starts_with('{') && fs::path(name).extension().empty();
  return "documents/" + name + (is_json ? ".json" : "");
}

std::string name_of(const fs::path& logdir) {
  const fs::path folder = fs::absolute(logdir).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

fs::path note_path(const fs::path& logdir) {
  return logdir / "logs" / "mlflow.json";
}

// The MLflow run that the run in this folder is logged to. "" if there is none on this server.
std::string noted_run(const fs::path& logdir, const std::string& uri) {
  const fs::path path = note_path(logdir);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return "";
  try {
    const auto note = nlohmann::json::parse(read_file(path));
    return note.at("uri") == uri ? note.at("run_id").get<std::string>() : "";
  } catch (const std::exception& error) {
    warn(fmt::format("{}: a new MLflow run is started, because this file cannot be read: {}",
                     path.string(), error.what()));
    return "";
  }
}

void note_run(const fs::path& logdir, const MlflowRun& run) {
  const nlohmann::ordered_json note = {{"uri", run.uri()}, {"run_id", run.id()}};
  make_directories(note_path(logdir).parent_path());
  write_file_atomically(note_path(logdir), note.dump(2) + "\n");
}

std::string metric_name(const Record& record, std::string metric) {
  std::ranges::replace(metric, '/', '.');
  if (record.scope == Scope::kBatch) metric += ".batch";
  return record.loader == kEpochKey ? metric : record.loader + "/" + metric;
}

const char* status_name(RunEnd::Status status) {
  if (status == RunEnd::Status::kFinished) return "FINISHED";
  return status == RunEnd::Status::kFailed ? "FAILED" : "KILLED";
}

}  // namespace

MlflowLogger::MlflowLogger(MlflowOptions options, MlflowLoggerOptions logger_options)
    : options_(with_environment(std::move(options), process::current_environment())),
      logger_options_(logger_options),
      exceptions_(std::uncaught_exceptions()),
      handled_(std::current_exception()) {}

MlflowLogger::~MlflowLogger() {
  if (!started_ || ::getpid() != owner_) return;
  try {
    close();
  } catch (const std::exception& error) {
    warn(message_of(error));
  }
}

void MlflowLogger::start(const RunStart& run) {
  const std::string before = run_id();
  start_ = run;
  owner_ = ::getpid();
  started_ = true;
  is_introduced_ = false;
  run_.reset();
  run_id_.clear();
  unsent_ = {};
  metrics_.clear();
  next_try_ = {};
  next_artifact_ = {};
  if (run.resumed) run_id_ = run.logdir ? noted_run(*run.logdir, options_.uri) : before;
  try_to([](MlflowRun&) {});
  send_documents();
}

// Calls `work` with the MLflow run, which is started if it is not there. Returns whether the server
// could be reached. What it refuses is lost: it would refuse it again.
bool MlflowLogger::try_to(const std::function<void(MlflowRun&)>& work) {
  const auto began = Clock::now();
  if (!started_ || began < next_try_) return false;
  try {
    if (run_ == nullptr) open();
    if (!is_introduced_) introduce();
    work(*run_);
    return true;
  } catch (const std::exception& error) {
    lose(message_of(error));
    const bool is_answered = run_ != nullptr && dynamic_cast<const MlflowRefusal*>(&error);
    if (is_answered) return true;
  }
  next_try_ = next_after(began);
  return false;
}

void MlflowLogger::open() {
  MlflowOptions options = options_;
  if (!options.run_name && start_.logdir) options.run_name = name_of(*start_.logdir);
  const bool is_noted = !options.run_id && !run_id_.empty();
  if (is_noted) options.run_id = run_id_;
  try {
    run_ = std::make_unique<MlflowRun>(options);
  } catch (const MlflowRefusal&) {
    if (!is_noted) throw;
    warn(
        fmt::format("MLflow at {}: has no run '{}', to which this run was logged before: a new "
                    "one is started",
                    options.uri, run_id_));
    options.run_id.reset();
    run_ = std::make_unique<MlflowRun>(options);
  }
  run_id_ = run_->id();
  if (start_.logdir) note_run(*start_.logdir, *run_);
}

// Sends the parameters, and takes the metrics of earlier epochs.
void MlflowLogger::introduce() {
  run_->log_parameters(start_.hparams);
  is_introduced_ = true;
  take_missing();
}

// Those that could not be sent are kept for the next call.
void MlflowLogger::send_documents() {
  auto& documents = start_.documents;
  while (!documents.empty()) {
    const auto& [name, content] = *documents.begin();
    const Sending sending =
        try_artifact({.name = document_name(name, content), .content = content});
    if (sending == Sending::kFailed) return;
    if (sending == Sending::kRefused) unsent_.artifacts += 1;
    documents.erase(documents.begin());
  }
}

// The process before this one may have ended, or lost the server, before it sent the last epochs.
void MlflowLogger::take_missing() {
  for (const auto& [epoch, loaders] : start_.history) {
    for (const auto& [loader, metrics] : loaders) {
      Record missing{.loader = loader, .progress = {.epoch = epoch}};
      for (const auto& [name, value] : metrics) {
        const auto last = run_->last_step(metric_name(missing, name));
        if (!last || *last < epoch) missing.metrics[name] = value;
      }
      log_metrics(missing);
    }
  }
}

void MlflowLogger::lose(const std::string& why) {
  if (std::exchange(warned_, true)) return;
  warn(fmt::format("{}; training goes on, and metrics are sent when the server takes them", why));
}

void MlflowLogger::log_metrics(const Record& record) {
  const std::int64_t step = record.scope == Scope::kBatch
                                ? record.step.value_or(record.progress.sample_step)
                                : record.progress.epoch;
  const std::int64_t time = now_in_milliseconds();
  for (const auto& [name, value] : record.metrics) {
    if (metrics_.size() >= kMostWaiting) {
      unsent_.metrics += 1;
      continue;
    }
    metrics_.push_back(
        {.name = metric_name(record, name), .value = value, .step = step, .time = time});
  }
}

void MlflowLogger::log_image(const std::string& loader, const std::string& tag, const Image& image,
                             const Progress& progress) {
  const ImageName name{.loader = loader, .tag = tag, .epoch = progress.epoch};
  send_artifact({.name = "images/" + image_file_name(name), .content = encode_png(image)});
}

void MlflowLogger::log_artifact(const Artifact& artifact, const Progress&) {
  artifact_name(artifact);  // a wrong name is the caller's mistake
  send_artifact(artifact);
}

// The store of the artifacts may fail while the server takes everything else. So a failure delays
// only the next artifact.
MlflowLogger::Sending MlflowLogger::try_artifact(const Artifact& artifact) {
  Sending sending = Sending::kFailed;
  if (Clock::now() < next_artifact_) return sending;
  try_to([&](MlflowRun& run) {
    const auto began = Clock::now();
    try {
      run.log_artifact(artifact);
      sending = Sending::kSent;
    } catch (const MlflowRefusal&) {
      sending = Sending::kRefused;
      throw;
    } catch (const std::exception& error) {
      lose(message_of(error));
      next_artifact_ = next_after(began);
    }
  });
  return sending;
}

void MlflowLogger::send_artifact(const Artifact& artifact) {
  if (try_artifact(artifact) != Sending::kSent) unsent_.artifacts += 1;
}

void MlflowLogger::flush() {
  while (!metrics_.empty()) {
    const std::size_t count = std::min(metrics_.size(), MlflowRun::kMostMetrics);
    bool is_sent = false;
    const bool is_reached = try_to([&](MlflowRun& run) {
      run.log_metrics(std::span(metrics_).first(count));
      is_sent = true;
    });
    if (!is_reached) break;
    if (!is_sent) unsent_.metrics += static_cast<std::int64_t>(count);
    metrics_.erase(metrics_.begin(), metrics_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  send_documents();
}

// The run ends: this is the last chance, also if the server has failed just before.
void MlflowLogger::flush_at_last() {
  next_try_ = {};
  next_artifact_ = {};
  flush();
}

void MlflowLogger::end(const RunEnd& run) {
  if (!started_) return;
  flush_at_last();
  if (run.summary) send_artifact({.path = run.summary});
  if (run.model && logger_options_.log_model) {
    send_artifact({.name = "checkpoints/" + run.model->filename().string(), .path = run.model});
  }
  finish(status_name(run.status));
}

void MlflowLogger::close() {
  if (!started_) return;
  flush_at_last();
  // The logger may have been made where an earlier exception is handled: that one does not count.
  const std::exception_ptr handled = std::current_exception();
  const bool has_failed =
      std::uncaught_exceptions() > exceptions_ || (handled != nullptr && handled != handled_);
  finish(has_failed ? "FAILED" : "FINISHED");
}

void MlflowLogger::finish(const char* status) {
  bool is_ended = false;
  try_to([&](MlflowRun& run) {
    run.end(status);
    is_ended = true;
  });
  unsent_.metrics += static_cast<std::int64_t>(metrics_.size());
  metrics_.clear();
  unsent_.artifacts += std::ssize(start_.documents);
  start_.documents.clear();
  started_ = false;
  const bool is_all = is_ended && unsent_.metrics == 0 && unsent_.artifacts == 0;
  if (is_all) return;
  warn(fmt::format("MLflow at {}: {} metrics and {} artifacts were not sent{}", options_.uri,
                   with_thousands(unsent_.metrics), with_thousands(unsent_.artifacts),
                   is_ended ? "" : fmt::format(", nor that the run is {}", status)));
}

std::shared_ptr<MlflowLogger> mlflow_of_environment(
    const std::vector<std::shared_ptr<Logger>>& loggers, const process::Environment& environment) {
  const auto uri = environment.find("MLFLOW_TRACKING_URI");
  if (uri == environment.end() || uri->second.empty()) return nullptr;
  const bool has_one = std::ranges::any_of(loggers, [](const auto& logger) {
    return dynamic_cast<const MlflowLogger*>(logger.get()) != nullptr;
  });
  if (has_one) return nullptr;
  try {
    return std::make_shared<MlflowLogger>();
  } catch (const ConfigError& error) {
    warn(fmt::format("this run is not logged to MLflow: {}", error.what()));
    return nullptr;
  }
}

}  // namespace lockstep
