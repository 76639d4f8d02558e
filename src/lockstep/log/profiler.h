// Where a run's time goes: data, forward, backward, reduce, wait, optimizer, callbacks; on each
// rank.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class Phase : std::uint8_t {
  kData,
  kForward,
  kBackward,
  kReduce,  // of gradients, over the workers
  kWait,    // for other workers
  kOptimizer,
  kCallbacks
};
inline constexpr std::size_t kPhases = 7;

// Costs one branch a phase when it is off.
class Profiler {
 public:
  explicit Profiler(bool enabled) : enabled_(enabled) {}

  // One that is off, for whoever has none.
  static Profiler& none();

  // Measures from its construction to its end.
  class TimedScope {
   public:
    TimedScope(Profiler& profiler, Phase phase);
    ~TimedScope();
    TimedScope(const TimedScope&) = delete;
    TimedScope& operator=(const TimedScope&) = delete;

   private:
    Profiler* profiler_;
    Phase phase_;
    std::chrono::steady_clock::time_point start_;
  };

  // A pass over a loader: what of it is in no phase is shown as "other".
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

  // All that was measured, for a report that is made in another process.
  std::string serialize() const;

 private:
  struct Event {
    Phase phase;
    double start_us;  // by the clock that the processes of a host share
    double duration_us;
  };
  static constexpr std::size_t kMaxEvents = 20'000;

  bool enabled_;
  std::int64_t batches_ = 0;
  std::array<double, kPhases> seconds_{};
  double pass_seconds_ = 0;
  std::vector<Event> events_;
};

// A table of phases, and of what is in none of them: total, share and microseconds a batch, in the
// mean over the ranks and on each (of very many, of the first few). `profiles` are every rank's,
// serialized.
std::string profile_table(std::span<const std::string> profiles);

// The first 20,000 scopes of every rank, for chrome://tracing or Perfetto.
void write_chrome_trace(const std::filesystem::path& path, std::span<const std::string> profiles);

}  // namespace lockstep
