// Measures how long each activity of a run takes on each rank: data, forward, backward, reduce,
// wait, optimizer, callbacks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class Activity : std::uint8_t {
  kData,
  kForward,
  kBackward,
  kReduce,  // of gradients, over the workers
  kWait,    // for other workers
  kOptimizer,
  kCallbacks
};
inline constexpr std::size_t kActivities = 7;

// If it is off, it costs one branch per activity.
class Profiler {
 public:
  explicit Profiler(bool enabled) : enabled_(enabled) {}

  // Measures the time from its construction to its destruction. Without a profiler it does nothing.
  class TimedScope {
   public:
    TimedScope(Profiler* profiler, Activity activity);
    TimedScope(Profiler& profiler, Activity activity) : TimedScope(&profiler, activity) {}
    ~TimedScope();
    TimedScope(const TimedScope&) = delete;
    TimedScope& operator=(const TimedScope&) = delete;

   private:
    Profiler* profiler_;
    Activity activity_;
    std::chrono::steady_clock::time_point start_;
  };

  // Measures a pass over a loader. The time that belongs to no activity is shown as "other".
  class Pass {
   public:
    explicit Pass(Profiler& profiler);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Profiler& profiler_;
    std::chrono::steady_clock::time_point start_;
  };

  bool enabled() const { return enabled_; }
  void count_batch() { ++batches_; }

  // All measurements as text, for a report that another process makes.
  std::string serialize() const;

 private:
  struct Event {
    Activity activity;
    double start_us;  // of the clock that all processes of a host share
    double duration_us;
  };
  static constexpr std::size_t kMaxEvents = 20'000;

  bool enabled_;
  std::int64_t batches_ = 0;
  std::array<double, kActivities> seconds_{};
  double pass_seconds_ = 0;
  std::vector<Event> events_;
};

// A table with one line per activity, and one for the time that belongs to none: total, share and
// microseconds per batch as means over the ranks, and microseconds per batch of each rank, at most
// of the first 8. `profiles` are the serialized profilers of all ranks.
std::string profile_table(std::span<const std::string> profiles);

// Writes the first 20,000 scopes of every rank, for chrome://tracing or Perfetto.
void write_chrome_trace(const std::filesystem::path& path, std::span<const std::string> profiles);

}  // namespace lockstep
