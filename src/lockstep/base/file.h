// Files that are whole or not there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

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

// Removes what writers that were killed in write_file_atomically left beside their files in
// `folder`. Nobody may be writing there. A folder that is not there has nothing to remove.
void remove_abandoned_writes(const std::filesystem::path& folder);

// Makes `link` another name of `target`'s content, replacing what `link` was, whole or not at all.
// A hard link where the file system has them, a copy otherwise.
void link_file_atomically(const std::filesystem::path& target, const std::filesystem::path& link);

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
