#include "lockstep/log/append_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"

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
  if (damaged_ && !cut_back()) {
    throw Error("{}: cannot append {} bytes: its end is damaged, and it cannot be cut back: {}",
                path_.string(), bytes.size(), std::strerror(errno));
  }
  for (std::size_t done = 0; done < bytes.size();) {
    const std::string_view rest = bytes.substr(done);
    const ssize_t written =
        repeat_if_interrupted([&] { return ::write(fd_.get(), rest.data(), rest.size()); });
    if (written < 0) {
      const std::string cause = std::strerror(errno);
      // After an incomplete piece, readers could not read any later piece.
      throw Error("{}: cannot append {} bytes: {}{}", path_.string(), bytes.size(), cause,
                  cut_back() ? "" : "; its end is damaged");
    }
    done += static_cast<std::size_t>(written);
  }
  size_ += static_cast<std::int64_t>(bytes.size());
  dirty_ = true;
}

bool AppendFile::cut_back() {
  damaged_ = repeat_if_interrupted([&] { return ::ftruncate(fd_.get(), size_); }) != 0;
  return !damaged_;
}

void AppendFile::sync() {
  if (!dirty_) return;
  if (repeat_if_interrupted([&] { return ::fdatasync(fd_.get()); }) != 0) {
    throw Error("{}: cannot sync: {}", path_.string(), std::strerror(errno));
  }
  dirty_ = false;
}

}  // namespace lockstep
