#include "lockstep/base/file.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::string last_error() {
  return std::strerror(errno);
}

// Stands between a file's name and the pid of the process that writes it.
constexpr std::string_view kAsideMark = ".tmp.";

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Syncs the folder that `file` is in. Errors are ignored: a file system that cannot sync folders
// (some network file systems) still renames atomically.
void sync_directory(const fs::path& file) {
  const FileDescriptor fd(::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

// A temporary name in the target's folder, for a file that is about to replace the target. The file
// is removed unless it was renamed to the target. The name cannot be guessed, and no existing file
// is opened or replaced under it. So another user of a shared folder cannot redirect the write with
// a symbolic link.
class Aside {
 public:
  explicit Aside(const fs::path& target)
      : path_(fmt::format("{}{}{}.{}", target.string(), kAsideMark, ::getpid(),
                          std::random_device()())) {}
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
    // If both names are hard links to the same file, rename() does nothing and both stay. Remove
    // the temporary one.
    ::unlink(path_.c_str());
    path_.clear();
    sync_directory(target);
  }

 private:
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
}

using Produce = std::function<void(const WriteBytes&)>;

void fill(const FileDescriptor& fd, const fs::path& path, const Produce& produce) {
  produce([&](std::string_view bytes) { write_all(fd, path, bytes); });
  if (::fsync(fd.get()) != 0) throw Error("{}: cannot sync: {}", path.string(), last_error());
}

// The file gets its name only after it is written, so nothing is left if this process is killed. If
// the target does not exist yet, the file gets that name directly. Returns false if unnamed files
// are not available: not every file system supports them, and not every container has /proc.
bool write_unnamed(const fs::path& path, Aside& aside, const Produce& produce) {
  const FileDescriptor fd(::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
  const std::string self = fmt::format("/proc/self/fd/{}", fd.get());
  if (!fd || ::access(self.c_str(), F_OK) != 0) return false;
  fill(fd, path, produce);
  const auto link_to = [&](const fs::path& name) {
    return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_to(path)) {
    sync_directory(path);
    return true;
  }
  if (errno != EEXIST || !link_to(aside.path())) return false;
  aside.rename_to(path);
  return true;
}

void write_named(const fs::path& path, Aside& aside, const Produce& produce) {
  const FileDescriptor fd(
      ::open(aside.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) throw Error("{}: cannot create: {}", aside.path().string(), last_error());
  fill(fd, path, produce);
  aside.rename_to(path);
}

}  // namespace

void write_file_atomically(const fs::path& path, const Produce& produce) {
  Aside aside(path);
  if (!write_unnamed(path, aside, produce)) write_named(path, aside, produce);
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  write_file_atomically(path, [&](const WriteBytes& write) { write(bytes); });
}

void remove_abandoned_writes(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto mark = name.rfind(kAsideMark);
    if (mark == std::string::npos) continue;
    // The mark is followed by a pid and a random number. Version 0.1.0 wrote only the pid.
    const auto numbers = std::string_view(name).substr(mark + kAsideMark.size());
    if (numbers.empty() || numbers.find_first_not_of("0123456789.") != numbers.npos) continue;
    fs::remove(entry.path(), error);
  }
}

void link_file_atomically(const fs::path& target, const fs::path& link) {
  Aside aside(link);
  // If the target is a symbolic link, `link` becomes a name of the file that it points to.
  if (::linkat(AT_FDCWD, target.c_str(), AT_FDCWD, aside.path().c_str(), AT_SYMLINK_FOLLOW) != 0) {
    write_file_atomically(link, read_file(target));
    return;
  }
  aside.rename_to(link);
}

std::string reading_failed(const FileInMessage& file, const std::exception& error) {
  const std::string path = printable(file.path.string());
  const std::string kind = file.kind.empty() ? "" : std::string(file.kind) + " ";
  const std::string message = message_of(error);
  if (message.starts_with(kind + path + ":")) return message;
  if (message.starts_with(path + ":")) return kind + message;
  return fmt::format("{}{}: {}", kind, path, message);
}

namespace {

std::string read_all(const fs::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw Error("cannot open: {}", last_error());
  // The size is a hint: files in /proc say 0, and a log may grow while it is read.
  struct stat status {};
  const bool sized = ::fstat(fd.get(), &status) == 0 && status.st_size > 0;
  std::string content(sized ? static_cast<std::size_t>(status.st_size) + 1 : 4096, '\0');
  std::size_t done = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("cannot read: {}", last_error());
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    if (done == content.size()) content.resize(2 * done);
  }
  content.resize(done);
  return content;
}

}  // namespace

std::string read_file(const fs::path& path) {
  return reading({path}, [&] { return read_all(path); });
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
