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
  for (auto& [loader, rows] : by_loader(run.history)) {
    open(loader, {.keep_until = finished_epochs_, .rows = std::move(rows)});
  }
}

void CsvLogger::log_metrics(const Record& record) {
  if (record.metrics.empty()) return;
  if (record.scope == Scope::kBatch) return log_batch(record);
  const std::string& name = file_name_of(record);
  const auto found = tables_.find(name);
  CsvTable& table =
      found != tables_.end() ? found->second : open(name, {.keep_until = finished_epochs_});
  table.add(record.progress.epoch, record.metrics);
}

void CsvLogger::log_batch(const Record& record) {
  if (!options_.log_batches) return;
  const std::int64_t step = record.step.value_or(record.progress.sample_step);
  const std::string name = "batches/" + file_name_of(record);
  auto found = tables_.find(name);
  if (found == tables_.end()) {
    // The rows from this step on are dropped, because these batches are run again.
    CsvTableOptions options;
    if (finished_epochs_) options.keep_until = step - 1;
    open(name, options);
    found = tables_.find(name);
  }
  found->second.add(step, record.metrics);
}

CsvTable& CsvLogger::open(const std::string& name, const CsvTableOptions& options) {
  const std::filesystem::path path = folder_ / (name + ".csv");
  make_directories(path.parent_path());
  return tables_.try_emplace(name, path, options).first->second;
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
