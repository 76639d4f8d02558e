// Files that are whole or not there, and errors that name them.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
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

// Writes beside `path`, syncs, renames over it and syncs the folder: a reader, or a machine that
// loses power, sees the old content or the new one. Throws Error; nothing is left behind then.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// The same for content that is not in memory as a whole: `produce` writes it piece by piece. It is
// called a second time where the file system turns out to have no files without a name.
using WriteBytes = std::function<void(std::string_view bytes)>;
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(const WriteBytes&)>& produce);

// Removes what writers that were killed in write_file_atomically left beside their files in
// `folder`. No process may be writing there. A folder that does not exist has nothing to remove.
void remove_abandoned_writes(const std::filesystem::path& folder);

// Makes `link` another name of `target`'s content, replacing what `link` was, whole or not at all.
// A hard link where the file system has them, a copy otherwise.
void link_file_atomically(const std::filesystem::path& target, const std::filesystem::path& link);

// The file that is being read, as an error message names it.
struct FileInMessage {
  const std::filesystem::path& path;
  std::string_view kind = "";  // put before the path: "checkpoint"
};

// "checkpoint a.pth: <what the exception says>"; the path is not repeated where the exception's
// message begins with it already.
std::string reading_failed(const FileInMessage& file, const std::exception& error);

// Calls `read`, which reads `file`. Any exception comes out as an E that names the file: one of a
// library, of the file system, or for lack of memory. This is the one place that does so.
template <typename E = Error, typename F>
auto reading(const FileInMessage& file, F&& read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::exception& error) {
    const std::string message = reading_failed(file, error);
    // Keeps the more special type of an error that is complete.
    if (dynamic_cast<const E*>(&error) != nullptr && message == error.what()) throw;
    throw E(message);
  }
}

// The whole content. Throws Error with the path and the cause.
std::string read_file(const std::filesystem::path& path);

// Creates the folder and its parents. Throws Error with the path and the cause.
void make_directories(const std::filesystem::path& path);

// A folder that is gone, with all in it, when this is destroyed.
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
