// Where a run's time goes: data, forward, backward, optimizer, callbacks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

enum class Part : std::uint8_t { kData, kForward, kBackward, kOptimizer, kCallbacks };
inline constexpr std::size_t kParts = 5;

// Costs one branch a part when it is off.
class Profiler {
 public:
  explicit Profiler(bool enabled) : enabled_(enabled) {}

  // Measures from its construction to its end.
  class Scope {
   public:
    Scope(Profiler& profiler, Part part);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Profiler* profiler_;
    Part part_;
    std::chrono::steady_clock::time_point start_;
  };

  bool enabled() const { return enabled_; }
  void count_batch() { ++batches_; }

  // A table of parts: total, share, microseconds a batch.
  std::string table() const;

  // The first few thousand scopes, for chrome://tracing or Perfetto.
  void write_chrome_trace(const std::filesystem::path& path) const;

 private:
  struct Event {
    Part part;
    double start_us;
    double duration_us;
  };
  static constexpr std::size_t kMaxEvents = 20'000;

  bool enabled_;
  std::int64_t batches_ = 0;
  std::array<double, kParts> seconds_{};
  std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
  std::vector<Event> events_;
};

}  // namespace lockstep
