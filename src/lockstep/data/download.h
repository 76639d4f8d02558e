// Fetches a file that is known by its checksum.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

struct DownloadOptions {
  std::vector<std::string> urls;     // mirrors of the one file, tried in this order
  std::filesystem::path path;        // where it goes; the folder is created
  std::string sha256;                // 64 lower-case hexadecimal digits
  std::int64_t max_bytes = 1 << 30;  // a mirror that sends more is given up
  std::chrono::seconds connect_timeout{15};
  std::chrono::seconds stall_timeout{30};  // a mirror below 1 KiB/s for so long is given up
  std::string advice;                      // what else the user can do; ends the error message
};

// Puts the file at `path`, whole and with the right checksum, or throws DataError with the reason
// of every mirror and leaves nothing. Shows its progress on standard error.
void download(const DownloadOptions& options);

}  // namespace lockstep::data
