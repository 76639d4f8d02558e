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
    kNew,       // the file must not exist yet
    kExisting,  // the file must exist
  };

  // Throws Error with the path and the cause.
  AppendFile(std::filesystem::path path, Open open);

  // Writes all of `bytes`, mostly with one write(), so no data waits in the process, where it would
  // be lost if the process dies. If the disk is full, the file is cut back to its earlier size, and
  // Error is thrown. If it cannot be cut back, later calls try that again before they append.
  // SIGKILL during the write may leave a part of the bytes, cut at the end of a memory page (Linux
  // does this). Readers must accept an incomplete end.
  void append(std::string_view bytes);

  // Returns when everything appended is on the disk.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  // Cuts the file to size_. False, with errno, if that is not possible.
  bool cut_back();

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::int64_t size_ = 0;  // of whole pieces
  bool dirty_ = false;
  bool damaged_ = false;  // a part of a piece follows the whole pieces
};

}  // namespace lockstep
