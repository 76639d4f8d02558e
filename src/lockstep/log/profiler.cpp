#include "lockstep/log/profiler.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, kActivities> kNames = {"data", "forward",   "backward", "reduce",
                                                         "wait", "optimizer", "callbacks"};
constexpr std::size_t kRanksShown = 8;

// The measurements of one rank, as serialize() wrote them.
struct Profile {
  explicit Profile(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    batches = std::max(1.0, json.at("batches").get<double>());
    seconds = json.at("seconds");
    pass_seconds = json.at("pass_seconds");
    events = json.at("events");
  }
  double in_activities() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
  double together() const { return std::max(pass_seconds, in_activities()); }
  double other() const { return together() - in_activities(); }

  double batches = 1;
  std::array<double, kActivities> seconds{};
  double pass_seconds = 0;
  nlohmann::json events;
};

std::vector<Profile> parse(std::span<const std::string> profiles) {
  return {profiles.begin(), profiles.end()};
}

// A line of the table. `seconds_of` returns a rank's time for this line.
std::string row(const char* name, const std::vector<Profile>& ranks,
                const std::function<double(const Profile&)>& seconds_of) {
  double seconds = 0;
  double together = 0;
  double batches = 0;
  for (const Profile& rank : ranks) {
    seconds += seconds_of(rank);
    together += rank.together();
    batches += rank.batches;
  }
  std::string text = fmt::format(
      "{:<10} {:>10.3f} {:>6.1f}% {:>12.1f}", name, seconds / static_cast<double>(ranks.size()),
      together > 0 ? 100 * seconds / together : 0.0, seconds / batches * 1e6);
  if (ranks.size() == 1) return text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i) {
    text += fmt::format(" {:>9.1f}", seconds_of(ranks[i]) / ranks[i].batches * 1e6);
  }
  return text;
}

}  // namespace

Profiler::TimedScope::TimedScope(Profiler* profiler, Activity activity)
    : profiler_(profiler != nullptr && profiler->enabled_ ? profiler : nullptr),
      activity_(activity) {
  if (profiler_ != nullptr) start_ = std::chrono::steady_clock::now();
}

Profiler::TimedScope::~TimedScope() {
  if (profiler_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - start_).count();
  profiler_->seconds_[static_cast<std::size_t>(activity_)] += seconds;
  if (profiler_->events_.size() >= kMaxEvents) return;
  const double start = std::chrono::duration<double>(start_.time_since_epoch()).count();
  profiler_->events_.push_back({activity_, start * 1e6, seconds * 1e6});
}

Profiler::Pass::Pass(Profiler& profiler)
    : profiler_(profiler), start_(std::chrono::steady_clock::now()) {}

Profiler::Pass::~Pass() {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  profiler_.pass_seconds_ += seconds.count();
}

std::string Profiler::serialize() const {
  nlohmann::json events = nlohmann::json::array();
  for (const Event& event : events_) {
    events.push_back({static_cast<int>(event.activity), event.start_us, event.duration_us});
  }
  return nlohmann::json{{"batches", batches_},
                        {"seconds", seconds_},
                        {"pass_seconds", pass_seconds_},
                        {"events", events}}
      .dump();
}

std::string profile_table(std::span<const std::string> profiles) {
  const std::vector<Profile> ranks = parse(profiles);
  std::string text =
      fmt::format("{:<10} {:>10} {:>7} {:>12}", "phase", "seconds", "share", "us per batch");
  if (ranks.size() > 1) {
    for (std::size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i) {
      text += fmt::format(" {:>9}", fmt::format("rank {}", i));
    }
  }
  for (std::size_t i = 0; i < kActivities; ++i) {
    text += '\n' + row(kNames[i], ranks, [i](const Profile& rank) { return rank.seconds[i]; });
  }
  text += '\n' + row("other", ranks, &Profile::other);
  return text + '\n' + row("together", ranks, &Profile::together);
}

void write_chrome_trace(const std::filesystem::path& path, std::span<const std::string> profiles) {
  const std::vector<Profile> ranks = parse(profiles);
  double origin = std::numeric_limits<double>::infinity();
  for (const Profile& rank : ranks) {
    for (const auto& event : rank.events) origin = std::min(origin, event[1].get<double>());
  }
  nlohmann::json events = nlohmann::json::array();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", i},
                      {"args", {{"name", fmt::format("rank {}", i)}}}});
    for (const auto& event : ranks[i].events) {
      events.push_back({{"name", kNames.at(event[0].get<std::size_t>())},
                        {"ph", "X"},
                        {"pid", i},
                        {"tid", 0},
                        {"ts", event[1].get<double>() - origin},
                        {"dur", event[2]}});
    }
  }
  write_file_atomically(path, nlohmann::json{{"traceEvents", events}}.dump());
}

}  // namespace lockstep
