#include "lockstep/log/loader_name.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

void check_loader_name(const std::string& name) {
  const auto unsafe = [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  };
  std::string_view cause;
  if (name.empty()) cause = "is empty";
  if (name.starts_with('.')) cause = "begins with a dot";
  if (std::any_of(name.begin(), name.end(), unsafe)) cause = "has a slash or a control character";
  if (name == kEpochKey) cause = "is reserved";
  if (!cause.empty()) {
    throw ConfigError(
        "loader '{}': the name {}; expected one that can name a file, like train or valid_2", name,
        cause);
  }
}

const std::string& file_name_of(const Record& record) {
  static const std::string epoch = kEpochKey;
  if (record.scope == Scope::kEpoch) return epoch;
  check_loader_name(record.loader);
  return record.loader;
}

std::map<std::string, std::map<std::int64_t, Metrics>> by_loader(
    const std::map<std::int64_t, EpochMetrics>& history) {
  std::map<std::string, std::map<std::int64_t, Metrics>> loaders;
  for (const auto& [epoch, all] : history) {
    for (const auto& [loader, metrics] : all) {
      if (metrics.empty()) continue;
      if (loader != kEpochKey) check_loader_name(loader);
      loaders[loader][epoch] = metrics;
    }
  }
  return loaders;
}

}  // namespace lockstep
