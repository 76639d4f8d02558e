#include "lockstep/log/console_logger.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/log/main_metrics.h"

namespace lockstep {
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
  const auto add = [&](std::string_view name, double value) {
    line += fmt::format("{}{}: {}", separator, name, format_metric(value));
    separator = " | ";
  };
  if (record.scope == Scope::kEpoch) {
    for (const auto& [name, value] : record.metrics) add(name, value);
  } else {
    for (const auto name : main_metrics(record.metrics, options_.first)) {
      add(name, record.metrics.find(name)->second);
    }
  }
  console_.line(line);
}

}  // namespace lockstep
