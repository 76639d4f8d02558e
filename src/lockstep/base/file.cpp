#include "lockstep/base/file.h"

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
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

OpenedFile open_regular_file(const fs::path& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  OpenedFile file{.descriptor =
                      FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  struct stat status {};
  if (!file.descriptor || ::fstat(file.descriptor.get(), &status) != 0) {
    throw DataError("{}: cannot open: {}", path.string(), last_error());
  }
  if (!S_ISREG(status.st_mode)) throw DataError("{}: not a regular file", path.string());
  file.size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

std::size_t read_some(const FileDescriptor& file, std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::read(file.get(), out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("cannot read: {}", last_error());
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
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

void sync(const FileDescriptor& fd, const fs::path& path) {
  if (repeat_if_interrupted([&] { return ::fsync(fd.get()); }) == 0) return;
  throw Error("{}: cannot sync: {}", path.string(), last_error());
}

FileDescriptor create(const fs::path& path) {
  FileDescriptor fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) throw Error("{}: cannot create: {}", path.string(), last_error());
  return fd;
}

// The name under which linkat() finds an unnamed file.
std::string link_to(const FileDescriptor& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// A file without a name: nothing is left if this process is killed. It is empty if unnamed files
// are not available: not every file system supports them, and not every container has /proc.
FileDescriptor create_unnamed(const fs::path& folder) {
  FileDescriptor fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (fd && ::access(link_to(fd).c_str(), F_OK) == 0) return fd;
  return {};
}

void copy_content(const FileDescriptor& from, const FileDescriptor& to, const fs::path& path) {
  std::string bytes(1 << 20, '\0');
  off_t at = 0;
  while (true) {
    const ssize_t n = ::pread(from.get(), bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("{}: cannot read back: {}", path.string(), last_error());
    if (n == 0) return;
    write_all(to, path, std::string_view(bytes).substr(0, static_cast<std::size_t>(n)));
    at += n;
  }
}

}  // namespace

// A temporary name in the target's folder, for a file that is about to replace the target. The file
// is removed unless it was renamed to the target. The name cannot be guessed, and no existing file
// is opened or replaced under it. So another user of a shared folder cannot redirect the write with
// a symbolic link.
class AsideName {
 public:
  explicit AsideName(const fs::path& target)
      : path_(fmt::format("{}{}{}.{}", target.string(), kAsideMark, ::getpid(),
                          std::random_device()())) {}
  ~AsideName() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  AsideName(const AsideName&) = delete;
  AsideName& operator=(const AsideName&) = delete;

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

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)),
      aside_(std::make_unique<AsideName>(path_)),
      fd_(create_unnamed(folder_of(path_))) {
  if (fd_) return;
  fd_ = create(aside_->path());
  named_ = true;
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::write(std::string_view bytes) {
  write_all(fd_, path_, bytes);
}

void AtomicFile::commit() {
  sync(fd_, path_);
  if (!named_) {
    const std::string self = link_to(fd_);
    const auto give_name = [&](const fs::path& name) {
      return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    // If the target does not exist yet, the file gets that name directly.
    if (give_name(path_)) return sync_directory(path_);
    if (errno != EEXIST || !give_name(aside_->path())) {
      // This file system has unnamed files and cannot name them.
      const FileDescriptor copy = create(aside_->path());
      copy_content(fd_, copy, path_);
      sync(copy, path_);
    }
  }
  aside_->rename_to(path_);
}

void write_file_atomically(const fs::path& path,
                           const std::function<void(const WriteBytes&)>& produce) {
  AtomicFile file(path);
  produce([&](std::string_view bytes) { file.write(bytes); });
  file.commit();
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
  AsideName aside(link);
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
    done += read_some(fd, std::span(content).subspan(done));
    if (done < content.size()) break;
    content.resize(2 * done);
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
