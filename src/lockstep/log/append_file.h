// A file that only grows, piece by piece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "lockstep/base/file.h"

namespace lockstep {

class AppendFile {
 public:
  enum class Open {
    kNew,       // it must not be there yet
    kExisting,  // it must be there
  };

  // Throws Error with the path and the cause.
  AppendFile(std::filesystem::path path, Open open);

  // One write() for all of `bytes`, so nothing waits in the process to be lost with it. Where the
  // disk is full the file is cut back to what it was, and Error is thrown. SIGKILL in the middle
  // may leave a piece cut at a memory page's end (so Linux does it): readers must bear a torn end.
  void append(std::string_view bytes);

  // Returns when everything appended is on the disk.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::int64_t size_ = 0;
  bool dirty_ = false;
};

}  // namespace lockstep
