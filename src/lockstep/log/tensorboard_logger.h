// Writes tensorboard/<loader>/ and tensorboard/_epoch_/ for `tensorboard --logdir <logdir>`.
//
// Tags are `<metric>/epoch` by epoch and, if asked for, `<metric>/batch` by samples seen: of all
// train loaders, or, for a loader that is not trained on, of that loader over all epochs. What the
// run was given is in the HParams tab (and as text), with the metrics beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "lockstep/log/event_file.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/summary_proto.h"

namespace lockstep {

struct TensorBoardOptions {
  bool log_batches = false;  // batches' metrics, too; a run has many
};

// A resumed run writes new files, which tell TensorBoard to drop what lies behind the resume:
// epochs after the finished ones, or, with log_batches, batches after the step. (A folder's tags
// share that one step. Epochs are then superseded tag by tag, as TensorBoard's fast loader does by
// itself. The folder of a loader with steps of its own says so before its first batch.)
class TensorBoardLogger : public Logger {
 public:
  explicit TensorBoardLogger(const std::filesystem::path& logdir,
                             const TensorBoardOptions& options = {});

  void start(const RunStart& run) override;
  void log_metrics(const Record& record) override;
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  void flush() override;
  void close() override;

 private:
  EventFile& file_of(const std::string& folder);
  void log_batch(const std::string& folder, const Record& record);
  bool has_own_steps(const std::string& folder) const;
  void write_experiment();

  std::filesystem::path folder_;
  TensorBoardOptions options_;
  std::optional<std::int64_t> resume_step_;              // the first step that will be run again
  std::map<std::string, EventFile, std::less<>> files_;  // by folder; "" is the top one
  HParams hparams_;
  std::set<std::string, std::less<>> own_steps_;  // folders whose resume has been said
  std::set<proto::MetricName> seen_;              // the metrics to name in the HParams tab
  bool experiment_written_ = false;
};

}  // namespace lockstep
