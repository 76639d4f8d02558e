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

  // The same, but pages are taken part by part, so memory of which only a part is used costs only
  // that part. Do not write to a part before take() has returned true for it: the process may end
  // with SIGBUS.
  static SharedMemory reserve(std::size_t size);
  // Takes the pages of a part. Returns false if there is not enough memory. Any process and thread
  // may call it, until close_handle().
  bool take(std::size_t offset, std::size_t size) const;

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // A text with which another process of this user and host can map the same memory. It is valid
  // until close_handle() or the end of this process.
  std::string handle() const;
  void close_handle() { descriptor_ = FileDescriptor(); }

  // Throws CommError if this process cannot open memory of the handle's process (it is on another
  // host or in another container, or permissions forbid it).
  static SharedMemory open(std::string_view handle);

  // The memory file, to be sent to another process. Nothing after close_handle().
  const FileDescriptor& descriptor() const { return descriptor_; }
  // Maps memory whose descriptor another process sent. Throws CommError if that fails.
  static SharedMemory adopt(FileDescriptor descriptor);

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
