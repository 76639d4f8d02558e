#include "lockstep/runner/profiler.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, kParts> kNames = {"data", "forward", "backward", "optimizer",
                                                    "callbacks"};

const char* name_of(Part part) {
  return kNames[static_cast<std::size_t>(part)];
}

}  // namespace

Profiler::Scope::Scope(Profiler& profiler, Part part)
    : profiler_(profiler.enabled_ ? &profiler : nullptr), part_(part) {
  if (profiler_ != nullptr) start_ = std::chrono::steady_clock::now();
}

Profiler::Scope::~Scope() {
  if (profiler_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - start_).count();
  profiler_->seconds_[static_cast<std::size_t>(part_)] += seconds;
  if (profiler_->events_.size() >= kMaxEvents) return;
  const double start = std::chrono::duration<double>(start_ - profiler_->origin_).count();
  profiler_->events_.push_back({part_, start * 1e6, seconds * 1e6});
}

std::string Profiler::table() const {
  const double total = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  const auto batches = static_cast<double>(std::max<std::int64_t>(batches_, 1));
  std::string text =
      fmt::format("{:<10} {:>10} {:>7} {:>12}\n", "part", "seconds", "share", "us a batch");
  for (std::size_t i = 0; i < kParts; ++i) {
    text += fmt::format("{:<10} {:>10.3f} {:>6.1f}% {:>12.1f}\n", kNames[i], seconds_[i],
                        total > 0 ? 100 * seconds_[i] / total : 0.0, seconds_[i] / batches * 1e6);
  }
  text += fmt::format("{:<10} {:>10.3f} {:>6.1f}% {:>12.1f}", "together", total, 100.0,
                      total / batches * 1e6);
  return text;
}

void Profiler::write_chrome_trace(const std::filesystem::path& path) const {
  nlohmann::json events = nlohmann::json::array();
  for (const auto& event : events_) {
    events.push_back({{"name", name_of(event.part)},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", 0},
                      {"ts", event.start_us},
                      {"dur", event.duration_us}});
  }
  write_file_atomically(path, nlohmann::json{{"traceEvents", events}}.dump());
}

}  // namespace lockstep
