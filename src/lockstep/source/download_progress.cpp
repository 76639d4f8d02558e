#include "lockstep/source/download_progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/text.h"

namespace lockstep::data {

DownloadProgress::DownloadProgress(std::string name, const std::string& url)
    : name_(std::move(name)), terminal_(::isatty(STDERR_FILENO) == 1) {
  if (!terminal_) fmt::print(stderr, "{}: downloading from {}\n", name_, url);
}

DownloadProgress::~DownloadProgress() {
  // The next output must begin on a new line.
  if (line_open_) std::fputc('\n', stderr);
}

void DownloadProgress::update(std::int64_t received, std::int64_t total) {
  constexpr std::chrono::milliseconds kInterval{100};
  const Clock::time_point now = Clock::now();
  if (!terminal_ || received == 0 || now - shown_ < kInterval) return;
  shown_ = now;
  line_open_ = true;
  fmt::print(stderr, "\r\x1b[K{}", progress_line(name_, received, total, seconds()));
  std::fflush(stderr);
}

void DownloadProgress::done(std::int64_t received) {
  line_open_ = false;
  fmt::print(stderr, "{}{}\n", terminal_ ? "\r\x1b[K" : "",
             progress_line(name_, received, received, seconds()));
}

double DownloadProgress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::string progress_line(const std::string& name, std::int64_t received, std::int64_t total,
                          double seconds) {
  const auto bytes = static_cast<double>(received);
  const std::string percent =
      total > 0 ? fmt::format("{:.0f} %, ", 100 * bytes / static_cast<double>(total)) : "";
  return fmt::format("{}: {}{}, {}/s", name, percent, format_bytes(bytes),
                     format_bytes(bytes / std::max(seconds, 1e-3)));
}

}  // namespace lockstep::data
