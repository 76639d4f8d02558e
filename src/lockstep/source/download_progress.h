// Shows the progress of a download on standard error. On a terminal it is one line that is
// rewritten. Otherwise it is one line at the start and one at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::data {

class DownloadProgress {
 public:
  DownloadProgress(std::string name, const std::string& url);
  ~DownloadProgress();
  DownloadProgress(const DownloadProgress&) = delete;
  DownloadProgress& operator=(const DownloadProgress&) = delete;

  // `total` is zero while it is not known.
  void update(std::int64_t received, std::int64_t total);
  void done(std::int64_t received);

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;

  std::string name_;
  bool terminal_;
  bool line_open_ = false;  // the cursor is at the end of our line
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_{};
};

// "file: 42 %, 10.9 MiB, 3.1 MiB/s"
std::string progress_line(const std::string& name, std::int64_t received, std::int64_t total,
                          double seconds);

}  // namespace lockstep::data
