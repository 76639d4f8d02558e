// Memory that several processes of one host share. It never has a name in the file system, so the
// kernel frees it when the last of them has ended, even if it was killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/file.h"

namespace lockstep::process {

// The memory is zero at first. The destructor unmaps it. A forked process inherits it.
class SharedMemory {
 public:
  // Throws CommError with the size and the cause.
  explicit SharedMemory(std::size_t size);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // A text with which another process of this user and host can map the same memory. It is valid
  // until close_handle() or the end of this process.
  std::string handle() const;
  void close_handle() { descriptor_ = FileDescriptor(); }

  // Throws CommError if this process cannot open memory of the handle's process (it is on another
  // host or in another container, or permissions forbid it).
  static SharedMemory open(std::string_view handle);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  SharedMemory() = default;
  void map();

  FileDescriptor descriptor_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::process
