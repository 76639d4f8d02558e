// Downloads a file with a known checksum.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

struct DownloadOptions {
  std::vector<std::string> urls;     // mirrors of the file, tried in this order
  std::filesystem::path path;        // where the file is put; the folder is created
  std::string sha256 = {};           // 64 lower-case hexadecimal digits
  std::string md5 = {};              // 32 of them, if the publisher gives no SHA-256
  std::int64_t max_bytes = 1 << 30;  // the next mirror is tried if one sends more
  std::chrono::seconds connect_timeout{15};
  std::chrono::seconds stall_timeout{30};  // how long a mirror may be below 1 KiB/s
  std::string advice;  // tells the user what else to do; it ends the error message
};

// The addresses of a file below the base addresses of its mirrors.
inline std::vector<std::string> urls_at(std::vector<std::string> mirrors, const std::string& file) {
  for (std::string& mirror : mirrors) mirror += (mirror.ends_with('/') ? "" : "/") + file;
  return mirrors;
}

// Puts the complete file with the right checksum at `path`. Otherwise it throws DataError with the
// reason for every mirror, and leaves nothing behind. Shows its progress on standard error.
void download(const DownloadOptions& options);

}  // namespace lockstep::data
