#include "lockstep/train/report.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store.h"
#include "lockstep/data/sharding.h"
#include "lockstep/log/console.h"
#include "lockstep/log/summary.h"

namespace lockstep {

void say(const TrainOptions& options, const std::string& line) {
  if (options.console) Console::standard().line(line);
}

namespace {

// "Trained 2 epochs (8 altogether) in 1.2 s, 30,000 samples/s"
std::string effort(const TrainResult& result, const State& state, const TrainOptions& options) {
  const std::int64_t trained = options.num_steps ? result.steps : result.epochs;
  const std::int64_t total = options.num_steps ? state.progress.update_step : state.progress.epoch;
  const char* const unit = options.num_steps ? "step" : "epoch";
  if (result.epochs == 0) return fmt::format("All {} {}s were done before", total, unit);
  return fmt::format("Trained {} {}{}{} in {}, {} samples/s", trained, unit,
                     trained == 1 ? "" : "s",
                     trained == total ? "" : fmt::format(" ({} altogether)", total),
                     format_duration(result.seconds),
                     with_thousands(std::llround(result.train_samples_per_second)));
}

// "Ctrl-C", "SIGTERM"
std::string signal_name(const State& state) {
  try {
    std::rethrow_exception(state.exception);
  } catch (const Interrupted& interrupt) {
    if (interrupt.signal_number == SIGINT) return "Ctrl-C";
    return fmt::format("SIG{}", sigabbrev_np(interrupt.signal_number));
  } catch (...) {
    return "a signal";
  }
}

// The number of samples of a batch of the first train loader.
std::int64_t update_batch_size(const State& state) {
  for (const auto& [name, loader] : state.loaders) {
    if (is_train_loader(name)) return data::batch_split(loader, state.engine->shards()).global;
  }
  return 0;
}

}  // namespace

void report_interruption(const State& state, const TrainOptions& options) {
  std::string where = state.progress.epoch == 0 ? "before the first epoch"
                                                : fmt::format("in epoch {}", state.progress.epoch);
  if (state.can_snapshot && state.inside_epoch) {
    where += fmt::format(", batch {} of {} of '{}'", state.loader_batch, state.loader_batches,
                         state.loader);
  }
  const std::string interrupted = fmt::format("Interrupted by {} {}", signal_name(state), where);
  if (!state.last_checkpoint) {
    say(options, interrupted + "; nothing was saved, as " +
                     (options.logdir ? "no epoch was finished" : "there is no logdir"));
    return;
  }
  const std::string path = state.last_checkpoint->string();
  say(options, fmt::format("{}; the last checkpoint is {}", interrupted, path));
  if (!state.last_is_resumable) return;
  const bool in_logdir = options.logdir && state.last_checkpoint->parent_path() ==
                                               checkpoint::folder_in(*options.logdir);
  const std::string name = in_logdir ? "last" : path;
  say(options, fmt::format("To go on from there: --resume {0}, or .resume = \"{0}\" in C++{1}",
                           name, in_logdir ? " (a config with stages: --autoresume last)" : ""));
}

void report_run(const TrainResult& result, const State& state, const TrainOptions& options,
                std::span<const std::string> profiles, const std::string& operators) {
  const auto name = [](const auto& path) {
    return path ? std::optional(path->string()) : std::nullopt;
  };
  std::optional<EpochSummary> best;
  if (result.best_epoch > 0) {
    best = EpochSummary{result.best_epoch, result.best_metrics, name(result.best_checkpoint)};
  }
  if (options.logdir) {
    write_summary(*options.logdir / "summary.json",
                  {.best = best,
                   .last = EpochSummary{state.progress.epoch, result.last_metrics,
                                        name(result.last_checkpoint)},
                   .train_samples_per_second = result.train_samples_per_second,
                   .seconds = result.seconds,
                   // After a failure there may be fewer than the engine was asked for.
                   .workers = state.comm != nullptr ? state.comm->size() : 1,
                   .shards = state.engine->shards(),
                   .global_batch_size = update_batch_size(state),
                   .weights_hash = result.weights_hash,
                   .recoveries = result.recoveries,
                   .precision = state.precision.name(),
                   .skipped_steps = result.skipped_steps});
  }
  if (options.profile) {
    say(options, profile_table(profiles));
    if (options.logdir) write_chrome_trace(*options.logdir / "profile.json", profiles);
  }
  if (options.profile_operators) {
    say(options, operators);
    if (options.logdir) write_file_atomically(*options.logdir / "operators.txt", operators + '\n');
  }
  if (result.stop_reason) say(options, "Stopped: " + *result.stop_reason);
  if (state.selection.key && best) {
    say(options,
        fmt::format("Best epoch: {} ({} {}: {})", result.best_epoch, state.selection.key->loader,
                    state.selection.key->metric, format_metric(result.best_metric)));
  }
  say(options, fmt::format("{}, weights {}", effort(result, state, options), result.weights_hash));
  if (result.best_checkpoint) say(options, "Best checkpoint: " + result.best_checkpoint->string());
  if (options.logdir) say(options, "Logs: " + options.logdir->string());
}

}  // namespace lockstep
