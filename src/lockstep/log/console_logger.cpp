#include "lockstep/log/console_logger.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep {

void ConsoleLogger::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch) return;
  const std::string what = record.scope == Scope::kEpoch ? "* Epoch" : record.loader;
  std::string line =
      fmt::format("{} ({}/{})", what, record.progress.epoch, record.progress.num_epochs);
  std::string_view separator = " ";
  for (const auto& [name, value] : record.metrics) {
    if (name.ends_with("/mean") || name.ends_with("/std")) continue;
    line += fmt::format("{}{}: {}", separator, name, format_metric(value));
    separator = " | ";
  }
  console_.line(line);
}

}  // namespace lockstep
