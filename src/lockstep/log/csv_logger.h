// Writes logs/<loader>.csv, logs/_epoch_.csv and logs/hparams.yml. A CSV file has one row per
// epoch. Its header is `step,` and the names of the metrics in order. With log_batches,
// logs/batches/<loader>.csv has one row per batch; its step is the number of samples. Images are
// images/<loader>/<tag>.<epoch>.png, and artifacts are artifacts/<name>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/log/csv_table.h"
#include "lockstep/log/logger.h"

namespace lockstep {

struct CsvLoggerOptions {
  bool log_batches = false;  // also the metrics of every batch, if the run gives them to loggers
};

// A new run replaces existing files. A resumed run continues them, but drops the rows of epochs
// that were not finished, because they will be run again. Rows of finished epochs that a file lacks
// or that are damaged there are written again from the history; rows of batches are not. Throws
// ConfigError if the name of a loader cannot be the name of a file.
class CsvLogger : public Logger {
 public:
  explicit CsvLogger(std::filesystem::path logdir, const CsvLoggerOptions& options = {})
      : logdir_(std::move(logdir)), folder_(logdir_ / "logs"), options_(options) {}

  void start(const RunStart& run) override;
  void log_metrics(const Record& record) override;
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  void log_artifact(const Artifact& artifact, const Progress& progress) override;
  void close() override;

 private:
  CsvTable& open(const std::string& name, const CsvTableOptions& options);
  void log_batch(const Record& record);

  std::filesystem::path logdir_;
  std::filesystem::path folder_;  // of the CSV files
  CsvLoggerOptions options_;
  std::optional<std::int64_t> finished_epochs_;          // of a resumed run
  std::map<std::string, CsvTable, std::less<>> tables_;  // by the name of the file
};

}  // namespace lockstep
