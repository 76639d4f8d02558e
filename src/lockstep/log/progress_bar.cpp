#include "lockstep/log/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/log/main_metrics.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

constexpr auto kRedrawInterval = 100ms;
constexpr auto kPlainLineInterval = 10s;
constexpr int kCells = 10;

// The speed of the pass and the time that is left. Both are unknown before the first batch.
struct Pace {
  double elapsed = 0;
  std::optional<double> samples_per_second = {};
  std::optional<double> seconds_left = {};
};

double done_of(const BarPosition& position) {
  return static_cast<double>(position.batches) + position.part;
}

Pace pace_of(const ProgressBarOptions& options, const BarPosition& position, double elapsed) {
  Pace pace{.elapsed = elapsed};
  const double done = done_of(position) - done_of(options.begin);
  const std::int64_t samples = position.samples - options.begin.samples;
  if (done <= 0 || elapsed <= 0) return pace;
  pace.samples_per_second = static_cast<double>(samples) / elapsed;
  const double left = std::max(0.0, static_cast<double>(options.num_batches) - done_of(position));
  pace.seconds_left = elapsed / done * left;
  return pace;
}

std::string format_rate(const std::optional<double>& rate) {
  if (!rate) return "? samples/s";
  if (*rate < 10) return fmt::format("{:.1f} samples/s", *rate);
  return with_thousands(std::llround(*rate)) + " samples/s";
}

// 75 -> "01:15", 3725 -> "1:02:05"
std::string format_clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_cells(double share, bool utf8) {
  if (!utf8) {
    const int full = static_cast<int>(share * kCells);
    return std::string(full, '#') + std::string(kCells - full, ' ');
  }
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * kCells * 8);
  std::string cells;
  for (int i = 0; i < eighths / 8; ++i) cells += "█";
  cells += kEighths[eighths % 8];
  const int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  return cells + std::string(kCells - used, ' ');
}

std::string format_metrics(const Metrics& metrics) {
  std::string text;
  for (const std::string_view name : main_metrics(metrics, {"loss"})) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}={}", name, format_metric(metrics.find(name)->second));
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(Console& console, ProgressBarOptions options)
    : console_(console), options_(std::move(options)), start_(options_.clock()) {
  next_ = start_ + kPlainLineInterval;
  if (!console_.is_terminal()) return;
  shown_ = true;
  // Another thread may still run this handler after the bar is destroyed, so the handler does not
  // refer to the bar.
  other_warnings_ = set_warning_handler({});
  set_warning_handler([&console, others = other_warnings_](const std::string& message) {
    console.interrupt([&] {
      if (others) return others(message);
      print_warning(message);
    });
  });
  draw(options_.begin, {});
}

ProgressBar::~ProgressBar() {
  release();
}

void ProgressBar::finish(const BarPosition& position, const Metrics& metrics) {
  if (!shown_) return;
  console_.finish_bar(bar_line(position, metrics));
  release();
}

void ProgressBar::draw(const BarPosition& position, const Metrics& metrics) {
  if (console_.is_terminal()) {
    if (!shown_) return;
    console_.show_bar(bar_line(position, metrics));
    next_ = options_.clock() + kRedrawInterval;
  } else {
    console_.line(plain_line(position, metrics));
    next_ = options_.clock() + kPlainLineInterval;
  }
}

std::string ProgressBar::title() const {
  if (options_.shows == ProgressBars::kRun) return "Run";
  return fmt::format("{}/{} * Epoch ({})", options_.epoch, options_.num_epochs, options_.loader);
}

std::string ProgressBar::bar_line(const BarPosition& position, const Metrics& metrics) const {
  const Pace pace = pace_of(options_, position, Seconds(options_.clock() - start_).count());
  const double total = static_cast<double>(std::max<std::int64_t>(1, options_.num_batches));
  const double share = std::clamp(done_of(position) / total, 0.0, 1.0);
  std::string line =
      fmt::format("{}: {:3}% |{}| {}/{}{} [{}<{}, {}]", title(), static_cast<int>(share * 100),
                  format_cells(share, console_.utf8()), position.batches, options_.num_batches,
                  options_.shows == ProgressBars::kRun ? " epochs" : "", format_clock(pace.elapsed),
                  pace.seconds_left ? format_clock(*pace.seconds_left) : "?",
                  format_rate(pace.samples_per_second));
  if (!metrics.empty()) line += " " + format_metrics(metrics);
  return line;
}

std::string ProgressBar::plain_line(const BarPosition& position, const Metrics& metrics) const {
  const Pace pace = pace_of(options_, position, Seconds(options_.clock() - start_).count());
  std::string line =
      fmt::format("{}: {}/{} {}, {}", title(), position.batches, options_.num_batches,
                  options_.shows == ProgressBars::kRun ? "epochs" : "batches",
                  format_rate(pace.samples_per_second));
  if (pace.seconds_left) line += fmt::format(", {} left", format_duration(*pace.seconds_left));
  if (!metrics.empty()) line += ", " + format_metrics(metrics);
  return line;
}

void ProgressBar::release() {
  if (!std::exchange(shown_, false)) return;
  console_.clear_bar();
  set_warning_handler(std::move(other_warnings_));
}

}  // namespace lockstep
