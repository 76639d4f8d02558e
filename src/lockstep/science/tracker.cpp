#include "lockstep/science/tracker.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep::science {

FileTracker::FileTracker(std::filesystem::path folder) : folder_(std::move(folder)) {
  make_directories(folder_);
}

void FileTracker::log_parameter(const std::string& name, const HParam& value) {
  parameters_[name] = value;
  write();
}

void FileTracker::log_metric(const std::string& name, double value, std::int64_t step) {
  metrics_ += fmt::format("{},{},{}\n", name, step, value);
  write();
}

void FileTracker::log_artifact(const std::string& name, const std::string& content) {
  const auto path = folder_ / name;
  make_directories(path.parent_path());
  write_file_atomically(path, content);
}

void FileTracker::finish() {
  write();
}

void FileTracker::write() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : parameters_) {
    std::visit([&, key = name](const auto& held) { json[key] = held; }, value);
  }
  write_file_atomically(folder_ / "params.json", json.dump(2) + "\n");
  write_file_atomically(folder_ / "metrics.csv", metrics_);
}

}  // namespace lockstep::science
