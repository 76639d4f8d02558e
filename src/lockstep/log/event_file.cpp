#include "lockstep/log/event_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/log/crc32c.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The host's name, without characters that cannot be in the name of a file.
std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name.data();
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

fs::path new_path(const fs::path& folder) {
  make_directories(folder);
  auto time = static_cast<std::int64_t>(wall_time());
  for (const fs::path& path : event_files_in(folder)) {
    const std::string name = path.filename().string();
    std::int64_t earlier = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), earlier);
    time = std::max(time, earlier + 1);
  }
  return folder / fmt::format("{}{:010}.{}.{}", kPrefix, time, host_name(), ::getpid());
}

}  // namespace

std::vector<fs::path> event_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(kPrefix)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

double wall_time() {
  using Seconds = std::chrono::duration<double>;
  return Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string frame_record(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  append_little_endian(record, data.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += data;
  append_little_endian(record, masked_crc32c(data), 4);
  return record;
}

EventFile::EventFile(const fs::path& folder) : file_(new_path(folder), AppendFile::Open::kNew) {
  constexpr int kFileVersion = 3;
  try {
    write(0, ProtoMessage().bytes(kFileVersion, "brain.Event:2"));
  } catch (const Error&) {
    ::unlink(path().c_str());  // nothing is left of a file that could not be begun
    throw;
  }
}

void EventFile::write(std::int64_t step, const ProtoMessage& content) {
  constexpr int kWallTime = 1, kStep = 2;
  ProtoMessage event;
  event.float64(kWallTime, wall_time()).integer(kStep, step).merge(content);
  file_.append(frame_record(event.encoded()));
}

}  // namespace lockstep
