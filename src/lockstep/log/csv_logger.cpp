#include "lockstep/log/csv_logger.h"

#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/log/hparams_yaml.h"
#include "lockstep/log/loader_name.h"

namespace lockstep {

void CsvLogger::start(const RunStart& run) {
  if (run.resumed) finished_epochs_ = run.progress.epoch;
  make_directories(folder_);
  write_file_atomically(folder_ / "hparams.yml", to_yaml(run.hparams));
  if (!run.resumed) return;
  for (auto& [loader, rows] : by_loader(run.history)) open(loader, std::move(rows));
}

void CsvLogger::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch || record.metrics.empty()) return;
  const std::string& name = file_name_of(record);
  const auto found = tables_.find(name);
  CsvTable& table = found != tables_.end() ? found->second : open(name, {});
  table.add(record.progress.epoch, record.metrics);
}

CsvTable& CsvLogger::open(const std::string& name, std::map<std::int64_t, Metrics> rows) {
  make_directories(folder_);
  const CsvTableOptions options{.keep_until = finished_epochs_, .rows = std::move(rows)};
  return tables_.try_emplace(name, folder_ / (name + ".csv"), options).first->second;
}

void CsvLogger::log_image(const std::string& loader, const std::string& tag, const Image& image,
                          const Progress& progress) {
  const std::string name = image_file_name({.loader = loader, .tag = tag, .epoch = progress.epoch});
  store_artifact({.name = name, .content = encode_png(image)}, logdir_ / "images");
}

void CsvLogger::log_artifact(const Artifact& artifact, const Progress&) {
  store_artifact(artifact, logdir_ / "artifacts");
}

void CsvLogger::close() {
  for (auto& [name, table] : tables_) table.sync();
  tables_.clear();
}

}  // namespace lockstep
