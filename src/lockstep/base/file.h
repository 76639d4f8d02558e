// Files that are written completely or not at all, and errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Owns a POSIX file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A regular file that is open for reading, and its size at that time.
struct OpenedFile {
  FileDescriptor descriptor;
  std::uint64_t size = 0;
};

// Throws DataError with the path and the cause, also if the path is a folder, a pipe or a device.
// Opening a pipe does not wait for a writer.
OpenedFile open_regular_file(const std::filesystem::path& path);

// Fills `out` from the file's position on, or a part of it if the file ends, and returns the number
// of bytes. Throws Error with the cause.
std::size_t read_some(const FileDescriptor& file, std::span<char> out);

// Writes a new file in the folder of `path`, syncs it, renames it to `path` and syncs the folder. A
// reader sees the old content or the new one, also after a loss of power. Throws Error; then no
// temporary file is left behind.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// The same for content that is not in memory as a whole: `produce` writes it piece by piece.
using WriteBytes = std::function<void(std::string_view bytes)>;
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const WriteBytes&)>& produce);

class AsideName;  // a temporary name of a file

// The same for content that comes from several calls. Without commit(), nothing is left behind.
class AtomicFile {
 public:
  // Creates the new file. Throws Error with the path and the cause.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void write(std::string_view bytes);

  // Syncs the file and gives it its name. Call it once, at the end.
  void commit();

 private:
  std::filesystem::path path_;
  std::unique_ptr<AsideName> aside_;
  FileDescriptor fd_;
  bool named_ = false;  // under the name of aside_
};

// Removes the temporary files that processes left in `folder` when they were killed inside
// write_file_atomically. No process may be writing there. Does nothing if there is no such folder.
void remove_abandoned_writes(const std::filesystem::path& folder);

// Makes `link` another name of `target`'s content. An existing `link` is replaced atomically. It is
// a hard link if the file system supports them, and a copy otherwise.
void link_file_atomically(const std::filesystem::path& target, const std::filesystem::path& link);

// The file that is being read, as an error message names it.
struct FileInMessage {
  const std::filesystem::path& path;
  std::string_view kind = "";  // put before the path: "checkpoint"
};

// "checkpoint a.pth: <what the exception says>". The path is not repeated if the exception's
// message already begins with it.
std::string reading_failed(const FileInMessage& file, const std::exception& error);

// Calls `read`, which reads `file`. Every exception (of a library, of the file system, or for lack
// of memory) is thrown again as an E that names the file. Only this function does so.
template <typename E = Error, typename F>
auto reading(const FileInMessage& file, F&& read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::exception& error) {
    const std::string message = reading_failed(file, error);
    // The message names the file already, so the error keeps its type, which may derive from E.
    if (dynamic_cast<const E*>(&error) != nullptr && message == error.what()) throw;
    throw E(message);
  }
}

// The whole content. Throws Error with the path and the cause.
std::string read_file(const std::filesystem::path& path);

// Creates the folder and its parents. Throws Error with the path and the cause.
void make_directories(const std::filesystem::path& path);

// Creates a folder and removes it with all its content in the destructor.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
