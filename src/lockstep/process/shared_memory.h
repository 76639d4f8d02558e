// Memory that several processes of one host see. It never has a name in the file system, so nothing
// is left of it when the last of them is gone, however they went.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/file.h"

namespace lockstep::process {

// Movable; zeroed at first; unmapped at its end. A fork inherits it.
class SharedMemory {
 public:
  // Throws CommError with the size and the cause.
  explicit SharedMemory(std::size_t size);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // What another process of this user and host needs to map the same memory, as text. It works
  // until close_handle() or the end of this process.
  std::string handle() const;
  void close_handle() { descriptor_ = FileDescriptor(); }

  // Throws CommError where the handle's process cannot be reached from here (another host or
  // container, or its user forbids it).
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
