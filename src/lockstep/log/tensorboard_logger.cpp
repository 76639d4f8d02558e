#include "lockstep/log/tensorboard_logger.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/log/hparams_yaml.h"
#include "lockstep/log/loader_name.h"

namespace lockstep {
namespace {

// Four spaces before each line: Markdown's preformatted text.
std::string preformatted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() || out.back() == '\n') out += "    ";
    out += c;
  }
  return out;
}

constexpr std::string_view kEpochSuffix = "epoch";
constexpr std::string_view kBatchSuffix = "batch";

// As proto::scalars() makes it.
std::string tag_of(const std::string& metric, std::string_view suffix = kEpochSuffix) {
  return fmt::format("{}/{}", metric, suffix);
}

constexpr const char* kTop = "";                    // the folder that contains those of all loaders
constexpr const char* kHistograms = "/histograms";  // inside of the loader's folder

}  // namespace

TensorBoardLogger::TensorBoardLogger(const std::filesystem::path& logdir,
                                     const TensorBoardOptions& options)
    : folder_(logdir / "tensorboard"), options_(options) {}

void TensorBoardLogger::start(const RunStart& run) {
  if (run.restarted) restart_ = run.progress;
  if (run.resumed && !run.restarted) {
    resume_step_ = (options_.log_batches ? run.progress.sample_step : run.progress.epoch) + 1;
  }
  if (run.resumed) restore(by_loader(run.history));
  hparams_ = run.hparams;
  if (hparams_.empty()) return;
  EventFile& file = file_of(kTop);
  file.write(0, proto::hparams_session(hparams_, wall_time()));
  file.write(0, proto::text("hparams", preformatted(to_yaml(hparams_))));
}

void TensorBoardLogger::restore(const LoaderHistory& history) {
  for (const auto& [loader, epochs] : history) {
    ScalarSteps known;
    try {
      known = read_scalar_steps(folder_ / loader, "/" + std::string(kEpochSuffix));
    } catch (const std::exception& error) {
      // The run can go on without knowing what the files have.
      warn(fmt::format("{}; what this folder lacks is not written again", message_of(error)));
      continue;
    }
    restore(loader, epochs, known);
    if (loader == kEpochKey) continue;
    for (const auto& [metric, value] : epochs.rbegin()->second) note_metric(loader, metric);
  }
}

// All epochs from the first missing one on are written again, because TensorBoard drops the later
// values of a tag when it reads an earlier step.
void TensorBoardLogger::restore(const std::string& loader,
                                const std::map<std::int64_t, Metrics>& epochs,
                                const ScalarSteps& known) {
  const auto is_known = [&](std::int64_t epoch, const std::string& metric) {
    return known.contains({tag_of(metric), epoch});
  };
  const auto first = std::ranges::find_if(epochs, [&](const auto& epoch) {
    return !std::ranges::all_of(
        epoch.second, [&](const auto& metric) { return is_known(epoch.first, metric.first); });
  });
  if (first == epochs.end()) return;
  const bool repeats = std::any_of(first, epochs.end(), [&](const auto& epoch) {
    return std::ranges::any_of(
        epoch.second, [&](const auto& metric) { return is_known(epoch.first, metric.first); });
  });
  // Mostly the end of a file is lost, so that nothing is repeated.
  const bool drops = repeats && !options_.log_batches;
  EventFile& file = file_of(loader, drops ? std::optional(first->first) : resume_step_);
  for (auto epoch = first; epoch != epochs.end(); ++epoch) {
    file.write(epoch->first, proto::scalars(epoch->second, kEpochSuffix));
  }
}

void TensorBoardLogger::note_metric(const std::string& loader, const std::string& metric) {
  if (!experiment_written_) seen_.insert({loader, tag_of(metric)});
}

void TensorBoardLogger::log_metrics(const Record& record) {
  const bool batch = record.scope == Scope::kBatch;
  if (record.metrics.empty() || (batch && !options_.log_batches)) return;
  const std::string& name = file_name_of(record);
  if (batch) return log_batch(name, record);
  const std::int64_t step = record.progress.epoch;
  const Metrics metrics = unknown(name, record.metrics, {.suffix = kEpochSuffix, .step = step});
  if (!metrics.empty()) file_of(name).write(step, proto::scalars(metrics, kEpochSuffix));
  // Metrics that callbacks log in on_run_start have the step 0. TensorBoard keeps the first list of
  // metrics that it reads, and that must be the list of an epoch.
  if (record.scope != Scope::kLoader || step < 1) return;
  for (const auto& [metric, value] : record.metrics) note_metric(name, metric);
}

void TensorBoardLogger::log_image(const std::string& loader, const std::string& tag,
                                  const Image& image, const Progress& progress) {
  if (loader != kEpochKey) check_loader_name(loader);
  file_of(loader).write(progress.epoch, proto::image(tag, image));
}

void TensorBoardLogger::log_artifact(const Artifact& artifact, const Progress& progress) {
  constexpr std::uintmax_t kLongest = 64 << 10;
  const std::string name = artifact_name(artifact);
  if (artifact_size(artifact) > kLongest) return;
  const std::string text = artifact_bytes(artifact);
  const bool is_text = is_utf8(text) && text.find('\0') == std::string::npos;
  if (is_text) file_of(kTop).write(progress.epoch, proto::text(name, preformatted(text)));
}

void TensorBoardLogger::log_histogram(const std::string& loader, const std::string& tag,
                                      const Histogram& histogram, const Progress& progress) {
  if (loader != kEpochKey) check_loader_name(loader);
  const std::string folder = loader + kHistograms;
  begin_own_steps(folder, progress.update_step);
  file_of(folder).write(progress.update_step, proto::histogram(tag, histogram));
}

void TensorBoardLogger::flush() {
  write_experiment();
}

void TensorBoardLogger::close() {
  write_experiment();
  for (auto& [name, file] : files_) file.sync();
  files_.clear();
}

EventFile& TensorBoardLogger::file_of(const std::string& folder) {
  return file_of(folder, resume_step_);
}

EventFile& TensorBoardLogger::file_of(const std::string& folder,
                                      const std::optional<std::int64_t>& resume_step) {
  const auto found = files_.find(folder);
  if (found != files_.end()) return found->second;
  EventFile file(folder_ / folder);
  // 0: nothing of the process before is kept.
  if (resume_step && (*resume_step == 0 || !has_own_steps(folder))) {
    file.write(*resume_step, proto::session_start());
  }
  // Only now: after an error, the next try writes the start of the session again.
  return files_.try_emplace(folder, std::move(file)).first->second;
}

// With log_batches, a loader that is not trained on (its name does not begin with "train") has its
// own steps, which are not those of the run. Histograms always have their own.
bool TensorBoardLogger::has_own_steps(const std::string& folder) const {
  if (folder.ends_with(kHistograms)) return true;
  return options_.log_batches && folder != kTop && folder != kEpochKey &&
         !folder.starts_with("train");
}

void TensorBoardLogger::log_batch(const std::string& folder, const Record& record) {
  const std::int64_t step = record.step.value_or(record.progress.sample_step);
  begin_own_steps(folder, step);
  // A callback may log batches of a loader that is not trained on without a step of their own. All
  // have that of the restart then, and those before it are not logged again.
  const bool is_counted = record.step || !restart_ || step > restart_->sample_step;
  const Metrics metrics =
      is_counted ? unknown(folder, record.metrics, {.suffix = kBatchSuffix, .step = step})
                 : record.metrics;
  if (!metrics.empty()) file_of(folder).write(step, proto::scalars(metrics, kBatchSuffix));
}

// Of what is logged again, a value is left out as often as the process before has written it.
bool TensorBoardLogger::is_known(const std::string& folder, const std::string& metric,
                                 const MetricStep& at) {
  if (!restart_) return false;
  const auto& [suffix, step] = at;
  const auto [found, is_new] = known_.try_emplace({folder, std::string(suffix)});
  if (is_new) {
    // Rows of finished epochs are not logged again. Of batches there may be millions, but their
    // steps only increase.
    const std::int64_t first = suffix == kBatchSuffix ? step : restart_->epoch + 1;
    try {
      found->second = read_scalar_steps(folder_ / folder, fmt::format("/{}", suffix), first);
    } catch (const std::exception& error) {
      warn(fmt::format("{}; what this folder has may be written again", message_of(error)));
    }
  }
  const auto known = found->second.find({tag_of(metric, suffix), step});
  if (known == found->second.end()) return false;
  found->second.erase(known);
  return true;
}

Metrics TensorBoardLogger::unknown(const std::string& folder, const Metrics& metrics,
                                   const MetricStep& at) {
  Metrics rest;
  for (const auto& [metric, value] : metrics) {
    if (!is_known(folder, metric, at)) rest.emplace(metric, value);
  }
  return rest;
}

// Before the first record with this step: what an earlier run logged from this step on is run
// again.
void TensorBoardLogger::begin_own_steps(const std::string& folder, std::int64_t step) {
  if (!resume_step_ || !has_own_steps(folder) || own_steps_.contains(folder)) return;
  file_of(folder).write(step, proto::session_start());
  own_steps_.insert(folder);
}

// TensorBoard keeps the first experiment that it reads, so this is written only after the first
// epoch, when all metrics are known.
void TensorBoardLogger::write_experiment() {
  if (experiment_written_ || hparams_.empty() || seen_.empty()) return;
  file_of(kTop).write(0, proto::hparams_experiment(hparams_, seen_));
  experiment_written_ = true;
}

}  // namespace lockstep
