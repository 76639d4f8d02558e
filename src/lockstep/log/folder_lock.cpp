#include "lockstep/log/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), host,
                     fmt::gmtime(std::time(nullptr)));
}

// The text of the lock file, made printable: another user may have written it, and it is shown on
// the terminal.
std::string written_in(const FileDescriptor& fd) {
  char text[512];
  const ssize_t size = ::pread(fd.get(), text, sizeof text, 0);
  return size > 0 ? printable({text, static_cast<std::size_t>(size)}) : "another process";
}

// False if the process that had the lock removed the file after this process opened it. The lock is
// then on a file that no other process will find.
bool is_still_there(const FileDescriptor& fd, const fs::path& path) {
  struct stat opened {
  }, found{};
  return ::fstat(fd.get(), &opened) == 0 && ::stat(path.c_str(), &found) == 0 &&
         opened.st_ino == found.st_ino && opened.st_dev == found.st_dev;
}

FileDescriptor open_lock(const fs::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  // The file belongs to another user, whose run was killed. Opening it for reading is enough to
  // lock it.
  if (!fd && errno == EACCES) {
    fd = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  }
  if (!fd) throw Error("{}: cannot open the lock: {}", path.string(), std::strerror(errno));
  return fd;
}

enum class LockAttempt { kTaken, kRefused, kUnsupported };

LockAttempt try_lock(const FileDescriptor& fd) {
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return LockAttempt::kTaken;
  return errno == EWOULDBLOCK || errno == EINTR ? LockAttempt::kRefused : LockAttempt::kUnsupported;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : path_(folder / ".lock"), owner_(::getpid()) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + std::chrono::seconds(1);
  while (true) {
    FileDescriptor fd = open_lock(path_);
    const LockAttempt attempt = try_lock(fd);
    if (attempt == LockAttempt::kUnsupported) {
      // The file stays: another process may have a lock on it.
      warn(fmt::format("{}: cannot be locked ({}): make sure that no other run writes there",
                       folder.string(), std::strerror(errno)));
      return;
    }
    if (attempt == LockAttempt::kTaken && is_still_there(fd, path_)) {
      const std::string text = this_process();
      // The text is used only for messages. So a full disk is not an error here, and nothing is
      // written to a file of another user.
      if (::ftruncate(fd.get(), 0) == 0 && ::pwrite(fd.get(), text.data(), text.size(), 0) < 0) {
        warn(fmt::format("{}: cannot write: {}", path_.string(), std::strerror(errno)));
      }
      fd_ = std::move(fd);
      return;
    }
    if (attempt == LockAttempt::kRefused && steady_clock::now() > deadline) {
      throw Error(
          "{}: is in use by {}; two runs cannot write to one log folder: wait until that run has "
          "ended, or choose another folder",
          folder.string(), written_in(fd));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

FolderLock::~FolderLock() {
  if (fd_ && ::getpid() == owner_) ::unlink(path_.c_str());
}

}  // namespace lockstep
