// Writes logs/<loader>.csv, logs/_epoch_.csv and logs/hparams.yml: one row an epoch, the header
// `step,` and the metrics' names in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lockstep/log/csv_table.h"
#include "lockstep/log/logger.h"

namespace lockstep {

// A fresh run begins its files anew. A resumed run goes on with those that are there; rows of
// epochs after the finished ones, which will be run again, are dropped. A loader's name that cannot
// name a file is a ConfigError.
class CsvLogger : public Logger {
 public:
  explicit CsvLogger(const std::filesystem::path& logdir) : folder_(logdir / "logs") {}

  void start(const RunStart& run) override;
  void log_metrics(const Record& record) override;  // not batches
  void close() override;

 private:
  std::filesystem::path folder_;
  std::optional<std::int64_t> finished_epochs_;  // of a resumed run
  std::map<std::string, CsvTable, std::less<>> tables_;
};

}  // namespace lockstep
