// Writes tensorboard/<loader>/ and tensorboard/_epoch_/ for `tensorboard --logdir <logdir>`.
//
// Tags are `<metric>/epoch`, with the epoch as the step, and, with log_batches, `<metric>/batch`,
// with the number of samples seen as the step. These are the samples of all train loaders, or, for
// a loader that is not trained on, of that loader over all epochs. The run's hyper-parameters are
// in the HParams tab, next to the metrics, and in the text tab. Histograms are in
// tensorboard/<loader>/histograms/, with the number of updates as the step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/log/event_file.h"
#include "lockstep/log/event_scalars.h"
#include "lockstep/log/logger.h"
#include "lockstep/log/summary_proto.h"

namespace lockstep {

struct TensorBoardOptions {
  bool log_batches = false;  // also the metrics of batches, of which a run has many
};

// A resumed run writes new files. They make TensorBoard drop what will be run again: epochs after
// the finished ones, or, with log_batches, batches after the step of the resume. All tags of a
// folder share that one step. With log_batches, epochs are then replaced tag by tag, which
// TensorBoard's fast loader does by itself. In the folder of a loader that has its own steps, the
// resume is written before its first batch.
//
// Values of finished epochs that the earlier files lack are written again from the history. Values
// of batches and pictures are not in the history and stay lost.
//
// A new process of the same run drops nothing, because what is run again has the same values. Those
// metrics that the files of the process before have are not written again.
class TensorBoardLogger : public Logger {
 public:
  explicit TensorBoardLogger(const std::filesystem::path& logdir,
                             const TensorBoardOptions& options = {});

  void start(const RunStart& run) override;
  void log_metrics(const Record& record) override;
  void log_image(const std::string& loader, const std::string& tag, const Image& image,
                 const Progress& progress) override;
  // Text of up to 64 KiB is shown in the text tab, under the artifact's name. TensorBoard cannot
  // show other files, so they are ignored.
  void log_artifact(const Artifact& artifact, const Progress& progress) override;
  void log_histogram(const std::string& loader, const std::string& tag, const Histogram& histogram,
                     const Progress& progress) override;
  void flush() override;
  void close() override;

 private:
  // By the name of the loader, or kEpochKey, and by epoch.
  using LoaderHistory = std::map<std::string, std::map<std::int64_t, Metrics>>;

  void restore(const LoaderHistory& history);
  void restore(const std::string& loader, const std::map<std::int64_t, Metrics>& epochs,
               const ScalarSteps& known);
  // A step of the metrics of batches, or of those of loaders and epochs.
  struct MetricStep {
    std::string_view suffix = {};
    std::int64_t step = 0;
  };
  bool is_known(const std::string& folder, const std::string& metric, const MetricStep& at);
  Metrics unknown(const std::string& folder, const Metrics& metrics, const MetricStep& at);
  void note_metric(const std::string& loader, const std::string& metric);
  EventFile& file_of(const std::string& folder);
  // If the file is a new one, it begins with the start of a session at `resume_step`.
  EventFile& file_of(const std::string& folder, const std::optional<std::int64_t>& resume_step);
  void log_batch(const std::string& folder, const Record& record);
  void begin_own_steps(const std::string& folder, std::int64_t step);
  bool has_own_steps(const std::string& folder) const;
  void write_experiment();

  std::filesystem::path folder_;
  TensorBoardOptions options_;
  std::optional<std::int64_t> resume_step_;  // the first step that will be run again
  std::optional<Progress> restart_;          // where the run was restarted
  // After a restart: by folder and suffix, what the files of the process before have.
  std::map<std::pair<std::string, std::string>, ScalarSteps> known_;
  std::map<std::string, EventFile, std::less<>> files_;  // the key is the folder; "" is the top one
  HParams hparams_;
  std::set<std::string, std::less<>> own_steps_;  // folders in which the resume is written
  std::set<proto::MetricName> seen_;              // the metrics for the HParams tab
  bool experiment_written_ = false;
};

}  // namespace lockstep
