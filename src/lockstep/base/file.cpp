#include "lockstep/base/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::string last_error() {
  return std::strerror(errno);
}

// Between a file's name and the writer's process number.
constexpr std::string_view kAsideMark = ".tmp.";

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Removes a half-written file unless the write went through.
class Aside {
 public:
  explicit Aside(const fs::path& target)
      : path_(target.string() + std::string(kAsideMark) + std::to_string(::getpid())) {}
  ~Aside() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  const fs::path& path() const { return path_; }

  void rename_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      throw Error("{}: cannot rename to {}: {}", path_.string(), target.string(), last_error());
    }
    // Renaming onto another name of the same file does nothing and leaves both: remove ours.
    ::unlink(path_.c_str());
    path_.clear();
    sync_directory(target);
  }

 private:
  // A file system that cannot sync a folder (some network ones) still renamed atomically.
  static void sync_directory(const fs::path& target) {
    FileDescriptor fd(::open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd) ::fsync(fd.get());
  }

  fs::path path_;
};

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

namespace {

void write_all(const FileDescriptor& fd, const fs::path& path, std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error("{}: cannot write {} bytes: {}", path.string(), bytes.size(), last_error());
    }
    done += static_cast<std::size_t>(n);
  }
  if (::fsync(fd.get()) != 0) throw Error("{}: cannot sync: {}", path.string(), last_error());
}

// A file that gets its name when it is written leaves nothing when this process is killed. False
// where there is no such thing: not every file system has it, nor every container /proc.
bool write_unnamed(const fs::path& path, const fs::path& aside, std::string_view bytes) {
  const FileDescriptor fd(::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  const std::string self = fmt::format("/proc/self/fd/{}", fd.get());
  if (!fd || ::access(self.c_str(), F_OK) != 0) return false;
  write_all(fd, path, bytes);
  ::unlink(aside.c_str());  // of an earlier process with this one's number
  return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, aside.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

void write_named(const fs::path& path, const fs::path& aside, std::string_view bytes) {
  const FileDescriptor fd(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) throw Error("{}: cannot create: {}", aside.string(), last_error());
  write_all(fd, path, bytes);
}

}  // namespace

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  Aside aside(path);
  if (!write_unnamed(path, aside.path(), bytes)) write_named(path, aside.path(), bytes);
  aside.rename_to(path);
}

void remove_abandoned_writes(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto mark = name.rfind(kAsideMark);
    if (mark == std::string::npos) continue;
    const auto pid = std::string_view(name).substr(mark + kAsideMark.size());
    if (pid.empty() || pid.find_first_not_of("0123456789") != pid.npos) continue;
    fs::remove(entry.path(), error);
  }
}

void link_file_atomically(const fs::path& target, const fs::path& link) {
  Aside aside(link);
  ::unlink(aside.path().c_str());
  // A symbolic link is followed: its content is meant, not where it points from.
  if (::linkat(AT_FDCWD, target.c_str(), AT_FDCWD, aside.path().c_str(), AT_SYMLINK_FOLLOW) != 0) {
    write_file_atomically(link, read_file(target));
    return;
  }
  aside.rename_to(link);
}

std::string read_file(const fs::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw Error("{}: cannot open: {}", path.string(), last_error());
  // The size is a hint: files in /proc say 0, and a log may grow while it is read.
  struct stat status {};
  const bool sized = ::fstat(fd.get(), &status) == 0 && status.st_size > 0;
  std::string content(sized ? static_cast<std::size_t>(status.st_size) + 1 : 4096, '\0');
  std::size_t done = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("{}: cannot read: {}", path.string(), last_error());
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    if (done == content.size()) content.resize(2 * done);
  }
  content.resize(done);
  return content;
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error("{}: cannot create the folder: {}", path.string(), error.message());
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw Error("{}: cannot create: {}", name, last_error());
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep
