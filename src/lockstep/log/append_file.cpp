#include "lockstep/log/append_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {

AppendFile::AppendFile(std::filesystem::path path, Open open) : path_(std::move(path)) {
  const int create = open == Open::kNew ? O_CREAT | O_EXCL : 0;
  fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | create, 0666));
  if (fd_) size_ = ::lseek(fd_.get(), 0, SEEK_END);
  if (!fd_ || size_ < 0) {
    throw Error("{}: cannot open for appending: {}", path_.string(), std::strerror(errno));
  }
}

void AppendFile::append(std::string_view bytes) {
  ssize_t written = 0;
  do {
    written = ::write(fd_.get(), bytes.data(), bytes.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(bytes.size())) {
    const std::string cause = written < 0 ? std::strerror(errno) : "no space left";
    // After an incomplete piece, readers could not read any later piece.
    const bool restored = ::ftruncate(fd_.get(), size_) == 0;
    throw Error("{}: cannot append {} bytes: {}{}", path_.string(), bytes.size(), cause,
                restored ? "" : "; its end is damaged");
  }
  size_ += written;
  dirty_ = true;
}

void AppendFile::sync() {
  if (!dirty_) return;
  if (::fdatasync(fd_.get()) != 0) {
    throw Error("{}: cannot sync: {}", path_.string(), std::strerror(errno));
  }
  dirty_ = false;
}

}  // namespace lockstep
