#include "lockstep/science/tracker.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/log/csv_table.h"
#include "lockstep/process/environment.h"

namespace lockstep::science {
namespace {

constexpr const char* kParameters = "params.json";
constexpr const char* kMetrics = "metrics.csv";

}  // namespace

FileTracker::FileTracker(FileTrackerOptions options)
    : options_(std::move(options)), is_active_(process::is_primary_process()) {
  if (!is_active_) return;
  make_directories(folder());
  if (!options_.append || !std::filesystem::exists(folder() / kMetrics)) {
    write_file_atomically(folder() / kMetrics, "name,step,value\n");
    write_file_atomically(folder() / kParameters, "{}\n");
  }
}

void FileTracker::log_parameters(const HParams& parameters) {
  if (!is_active_) return;
  const std::filesystem::path path = folder() / kParameters;
  auto json =
      reading({.path = path}, [&] { return nlohmann::ordered_json::parse(read_file(path)); });
  for (const auto& [name, value] : parameters) {
    std::visit([&, key = name](const auto& held) { json[key] = held; }, value);
  }
  write_file_atomically(path, json.dump(2) + "\n");
}

void FileTracker::log_metrics(const std::vector<TrackedMetric>& metrics) {
  if (!is_active_) return;
  std::ofstream file(folder() / kMetrics, std::ios::app);
  for (const TrackedMetric& metric : metrics) {
    file << fmt::format("{},{},{}\n", csv_cell(metric.name), metric.step, metric.value);
  }
  if (!file.flush()) throw Error("{}: cannot be written", (folder() / kMetrics).string());
}

void FileTracker::log_artifact(const std::string& name, const std::string& content) {
  if (!is_active_) return;
  const auto path = folder() / name;
  make_directories(path.parent_path());
  write_file_atomically(path, content);
}

}  // namespace lockstep::science
