#include "lockstep/log/recovery_log.h"

#include <ctime>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/log/append_file.h"

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

// The process or the machine stopped while it wrote the last line. A line after it would be
// unreadable, too.
void cut_incomplete_line(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  const std::size_t complete = text.rfind('\n') + 1;  // 0 if there is no whole line
  if (complete == text.size()) return;
  std::error_code error;
  std::filesystem::resize_file(path, complete, error);
  if (error) {
    throw Error("{}: cannot remove its incomplete last line: {}", path.string(), error.message());
  }
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
  std::error_code ignored;  // then the file cannot be opened either, which says why
  const bool exists = std::filesystem::exists(path, ignored);
  if (exists) cut_incomplete_line(path);
  AppendFile file(path, exists ? AppendFile::Open::kExisting : AppendFile::Open::kNew);
  file.append(to_json_line(recovery));
}

std::string describe(const Recovery& recovery, const RestartCount& count) {
  // A reason that begins with "rank " names the rank already. A lost host has no rank.
  const std::string who =
      recovery.rank < 0 || recovery.reason.starts_with("rank ")
          ? recovery.reason
          : fmt::format("rank {}{}: {}", recovery.rank, place_of(recovery), recovery.reason);
  std::string repeated;
  if (const auto& batches = recovery.repeated_batches) {
    repeated =
        fmt::format(", {} batch{} repeated", with_thousands(*batches), *batches == 1 ? "" : "es");
  }
  const std::string of = count.most ? fmt::format(" of {}", *count.most) : "";
  return fmt::format("Recovered: {}; restart {}{}{}, {}", who, count.restart, of, repeated,
                     format_duration(recovery.seconds));
}

}  // namespace lockstep
