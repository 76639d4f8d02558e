#include "lockstep/log/console_logger.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// "accuracy03" is further from what a user looks for than "accuracy01".
bool is_top_k(std::string_view name) {
  const std::size_t at = name.find("accuracy");
  if (at == std::string_view::npos) return false;
  const std::string_view k = name.substr(at + std::string_view("accuracy").size());
  const bool numbered = k.size() >= 2 && std::isdigit(static_cast<unsigned char>(k[0])) != 0 &&
                        std::isdigit(static_cast<unsigned char>(k[1])) != 0;
  return numbered && !k.starts_with("01");
}

// What a loader's line shows beside the metrics that it begins with.
bool is_main(std::string_view name) {
  if (name == "lr" || name == "momentum" || is_top_k(name)) return false;
  if (name.starts_with("_timer/")) return true;  // the user asked for it with timeit
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return true;
  return name.substr(slash) == "/_macro" && name.substr(0, slash).find("f1") != name.npos;
}

}  // namespace

std::vector<std::string_view> ConsoleLogger::shown(const Record& record) const {
  std::vector<std::string_view> names;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : options_.first) {
    if (record.metrics.contains(name)) add(name);
  }
  for (const bool timers : {false, true}) {
    for (const auto& [name, value] : record.metrics) {
      const bool wanted = record.scope == Scope::kEpoch || is_main(name);
      if (wanted && name.starts_with('_') == timers) add(name);
    }
  }
  return names;
}

void ConsoleLogger::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch) return;
  const auto [epoch, num_epochs] = std::pair(record.progress.epoch, record.progress.num_epochs);
  std::string line = fmt::format(
      "{} ({}/{})", record.scope == Scope::kEpoch ? "* Epoch" : record.loader, epoch, num_epochs);
  if (record.scope == Scope::kLoader) {
    loader_width_ = std::max(loader_width_, record.loader.size());
    const std::string widest = fmt::format(" ({0}/{0})", num_epochs);
    line.resize(std::max(line.size(), loader_width_ + widest.size()), ' ');
  }
  std::string_view separator = " ";
  for (const std::string_view name : shown(record)) {
    const double value = record.metrics.find(name)->second;
    line += fmt::format("{}{}: {}", separator, name, format_metric(value));
    separator = " | ";
  }
  console_.line(line);
}

}  // namespace lockstep
