#include "lockstep/log/recovery_log.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

std::string utc(std::chrono::system_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = since.count() / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, since.count() % 1000);
}

std::string place_of(const Recovery& recovery) {
  if (recovery.epoch == 0) return "";
  return fmt::format(" (in epoch {}, batch {})", recovery.epoch, recovery.batch);
}

}  // namespace

std::string to_json_line(const Recovery& recovery) {
  using Json = nlohmann::ordered_json;
  const Json json = {{"time", utc(recovery.time)},
                     {"rank", recovery.rank},
                     {"kind", recovery.kind},
                     {"reason", recovery.reason},
                     {"epoch", recovery.epoch},
                     {"batch", recovery.batch},
                     {"repeated_batches",
                      recovery.repeated_batches ? Json(*recovery.repeated_batches) : Json(nullptr)},
                     {"seconds", recovery.seconds},
                     {"workers", recovery.workers}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void append_recovery(const std::filesystem::path& path, const Recovery& recovery) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  const std::string line = to_json_line(recovery);
  if (file && ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    return;
  }
  throw Error("{}: cannot append a line: {}", path.string(), std::strerror(errno));
}

std::string describe(const Recovery& recovery, const RestartCount& count) {
  // A reason that begins with "rank " names the rank already.
  const std::string who =
      recovery.reason.starts_with("rank ")
          ? recovery.reason
          : fmt::format("rank {}{}: {}", recovery.rank, place_of(recovery), recovery.reason);
  std::string repeated;
  if (const auto& batches = recovery.repeated_batches) {
    repeated =
        fmt::format(", {} batch{} repeated", with_thousands(*batches), *batches == 1 ? "" : "es");
  }
  return fmt::format("Recovered: {}; restart {} of {}{}, {}", who, count.restart, count.most,
                     repeated, format_duration(recovery.seconds));
}

}  // namespace lockstep
