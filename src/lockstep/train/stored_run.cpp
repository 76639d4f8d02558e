#include "lockstep/train/stored_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "lockstep/checkpoint/pickle.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The number of this process's calls of train() so far. It is global, because the points that a
// launcher keeps belong to a process: one that is started again makes the same calls in the same
// order.
std::atomic<int> stored_runs = 0;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StateDict to_state(const RunTotals& totals) {
  return {{"epochs_before", totals.epochs_before},
          {"steps_before", totals.steps_before},
          {"train_seconds", totals.train_seconds},
          {"train_samples", totals.train_samples},
          // Another host may read this, where the steady clock has another origin.
          {"seconds", std::chrono::duration<double>(Clock::now() - totals.start).count()},
          {"stored_at", wall_seconds()}};
}

RunTotals totals_from(const StateDict& state) {
  // The clocks of two hosts may differ a little.
  const double since = std::max(0.0, wall_seconds() - state.get<double>("stored_at"));
  const std::chrono::duration<double> seconds(state.get<double>("seconds") + since);
  return {.epochs_before = state.get<std::int64_t>("epochs_before"),
          .steps_before = state.get<std::int64_t>("steps_before"),
          .train_seconds = state.get<double>("train_seconds"),
          .train_samples = state.get<std::int64_t>("train_samples"),
          .start = Clock::now() - std::chrono::duration_cast<Clock::duration>(seconds)};
}

}  // namespace

int next_stored_run() {
  return stored_runs++;
}

void skip_stored_runs(std::size_t count) {
  stored_runs += static_cast<int>(count);
}

StoredRun::StoredRun(std::shared_ptr<process::MemoryFile> file, int run)
    : file_(std::move(file)), run_(run) {}

StoredContent StoredRun::decode(std::string bytes) {
  const StateDict state = checkpoint::from_pickle(std::move(bytes));
  StoredContent content{.identity = state.get<std::string>("identity"),
                        .is_finished = state.get<bool>("is_finished"),
                        .totals = totals_from(state.get<StateDict>("totals")),
                        .recoveries = state.get<std::int64_t>("recoveries")};
  if (!state.contains("snapshot")) return content;
  content.point = KeptRun{.snapshot = state.get<StateDict>("snapshot")};
  content.is_first_point = state.get<bool>("is_first_point");
  if (state.contains("stop_reason")) {
    content.point->stop_reason = state.get<std::string>("stop_reason");
  }
  if (state.contains("best_weights")) {
    content.point->best_weights = state.get<StateDict>("best_weights");
  }
  return content;
}

void StoredRun::write(const StoredContent& content) {
  StateDict state{{"identity", content.identity},
                  {"is_finished", content.is_finished},
                  {"totals", to_state(content.totals)},
                  {"recoveries", content.recoveries}};
  if (content.point) {
    state.set("snapshot", content.point->snapshot);
    state.set("is_first_point", content.is_first_point);
    if (content.point->stop_reason) state.set("stop_reason", *content.point->stop_reason);
    if (content.point->best_weights) state.set("best_weights", *content.point->best_weights);
  }
  sequence_ += 1;
  file_->write(run_, sequence_,
               [&](const WriteBytes& write) { checkpoint::write_pickle(state, write); });
}

void StoredRun::take(const process::StoredPoint& point) {
  sequence_ = point.sequence;
  const auto own = stored();
  if (!own || own->sequence < point.sequence) file_->write(run_, point.sequence, point.bytes);
}

}  // namespace lockstep
