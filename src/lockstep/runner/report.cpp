#include "lockstep/runner/report.h"

#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/log/console.h"
#include "lockstep/log/summary.h"

namespace lockstep {

void say(const TrainOptions& options, const std::string& line) {
  if (options.console) Console::standard().line(line);
}

void report_run(const TrainResult& result, const State& state, const TrainOptions& options,
                std::span<const std::string> profiles) {
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
                   .workers = state.engine->workers(),
                   .weights_hash = result.weights_hash});
  }
  if (options.profile) {
    say(options, profile_table(profiles));
    if (options.logdir) write_chrome_trace(*options.logdir / "profile.json", profiles);
  }
  if (result.stop_reason) say(options, "Stopped: " + *result.stop_reason);
  if (state.selection.key && best) {
    say(options,
        fmt::format("Best epoch: {} ({} {}: {})", result.best_epoch, state.selection.key->loader,
                    state.selection.key->metric, format_metric(result.best_metric)));
  }
  say(options,
      fmt::format(
          "Trained {} in {}, {} samples/s, weights {}",
          state.progress.epoch == 1 ? "1 epoch" : fmt::format("{} epochs", state.progress.epoch),
          format_duration(result.seconds),
          with_thousands(std::llround(result.train_samples_per_second)), result.weights_hash));
  if (result.best_checkpoint) say(options, "Best checkpoint: " + result.best_checkpoint->string());
  if (options.logdir) say(options, "Logs: " + options.logdir->string());
}

}  // namespace lockstep
