// A file in the address space of the process, to read from. The kernel reads its pages when they
// are needed and drops them when memory is short, so a file may be larger than the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep::data {

// Any thread may read, also in a process that is forked later. The file must not become shorter
// while it is mapped: reading a part that is gone ends the process with SIGBUS. Replacing the file
// by renaming another one is safe, because the old content stays until it is unmapped.
class MappedFile {
 public:
  // Throws DataError, which names the file, if it cannot be opened or is not a regular file.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const char> bytes() const { return bytes_; }

  // Throws DataError, which names the file, `what` and the place, if the part is not inside it.
  std::span<const char> part(std::uint64_t offset, std::uint64_t size, std::string_view what) const;

 private:
  std::filesystem::path path_;
  std::span<const char> bytes_;
};

}  // namespace lockstep::data
