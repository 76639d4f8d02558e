#include "lockstep/log/logdir.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

void require_writable_folder(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) {
    throw Error("{}: cannot be the log folder: it is a file", path.string());
  }
  make_directories(path);
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    throw Error("{}: cannot be the log folder: not writable: {}", path.string(),
                std::strerror(errno));
  }
}

std::vector<fs::path> outputs_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto name : kRunOutputs) {
    // A symbolic link without a target is an output, too.
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(folder / name, ignored))) found.emplace_back(name);
  }
  return found;
}

// One above the highest number in the folder. Gaps are not filled, so the numbers stay in the order
// of the runs.
fs::path next_numbered(const fs::path& folder) {
  std::int64_t highest = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    std::int64_t number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    highest = std::max(highest, number);
  }
  return folder / fmt::format("{}", highest + 1);
}

}  // namespace

LogDirectory prepare_logdir(const fs::path& path, const LogDirectoryOptions& options) {
  require_writable_folder(path);
  LogDirectory result{.path = path, .lock = std::make_unique<FolderLock>(path)};
  remove_abandoned_writes(path);
  for (const auto output : kRunOutputs) remove_abandoned_writes(path / output);
  const std::vector<fs::path> outputs = outputs_in(path);
  if (options.resume) fs::remove(path / "summary.json");
  if (options.resume || outputs.empty()) return result;

  make_directories(path / "previous");
  const fs::path target = next_numbered(path / "previous");
  make_directories(target);
  for (auto name = outputs.begin(); name != outputs.end(); ++name) {
    std::error_code error;
    fs::rename(path / *name, target / *name, error);
    if (error) {
      // What was moved goes back, so that the earlier run can still be resumed.
      std::error_code ignored;
      for (auto moved = outputs.begin(); moved != name; ++moved) {
        fs::rename(target / *moved, path / *moved, ignored);
      }
      fs::remove(target, ignored);
      throw Error("{}: cannot move an earlier run's output to {}: {}", (path / *name).string(),
                  target.string(), error.message());
    }
  }
  result.moved_to = target;
  return result;
}

}  // namespace lockstep
