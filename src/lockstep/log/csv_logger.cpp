#include "lockstep/log/csv_logger.h"

#include "lockstep/base/file.h"
#include "lockstep/log/hparams_yaml.h"
#include "lockstep/log/loader_name.h"

namespace lockstep {

void CsvLogger::start(const RunStart& run) {
  if (run.resumed) finished_epochs_ = run.progress.epoch;
  make_directories(folder_);
  write_file_atomically(folder_ / "hparams.yml", to_yaml(run.hparams));
}

void CsvLogger::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch || record.metrics.empty()) return;
  const std::string& name = file_name_of(record);
  auto table = tables_.find(name);
  if (table == tables_.end()) {
    make_directories(folder_);
    const CsvTableOptions options{.keep_until = finished_epochs_};
    table = tables_.try_emplace(name, folder_ / (name + ".csv"), options).first;
  }
  table->second.add(record.progress.epoch, record.metrics);
}

void CsvLogger::close() {
  for (auto& [name, table] : tables_) table.sync();
  tables_.clear();
}

}  // namespace lockstep
