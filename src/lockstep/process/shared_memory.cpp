#include "lockstep/process/shared_memory.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"

namespace lockstep::process {
namespace {

// Since Linux 6.3; the headers of older systems do not have it.
constexpr unsigned kNoExecSeal = 0x0008U;

// A file in memory. It can never be executed if the kernel supports that seal.
FileDescriptor memory_file() {
  FileDescriptor file(::memfd_create("lockstep", MFD_CLOEXEC | kNoExecSeal));
  if (!file && errno == EINVAL) file = FileDescriptor(::memfd_create("lockstep", MFD_CLOEXEC));
  return file;
}

// A size larger than the host's memory is refused without trying, because the kernel would kill
// other processes to get the memory.
bool exceeds_host(std::size_t size) {
  struct sysinfo host {};
  return ::sysinfo(&host) == 0 && size / host.mem_unit > host.totalram + host.totalswap;
}

// Allocates pages now. If they were allocated at the first write, a lack of memory would end the
// process with SIGBUS.
int take_pages(int descriptor, std::size_t offset, std::size_t size) {
  return repeat_if_interrupted([&] {
    return ::fallocate(descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(size));
  });
}

}  // namespace

SharedMemory::SharedMemory(std::size_t size) : SharedMemory(reserve(size)) {
  if (take(0, size)) return;
  throw CommError("shared memory: cannot get {} bytes: {}", size, std::strerror(errno));
}

SharedMemory SharedMemory::reserve(std::size_t size) {
  SharedMemory memory;
  memory.descriptor_ = memory_file();
  memory.size_ = size;
  if (exceeds_host(size)) {
    throw CommError("shared memory: cannot get {} bytes: {}", size, std::strerror(ENOMEM));
  }
  const auto set_size = [&] {
    return ::ftruncate(memory.descriptor_.get(), static_cast<off_t>(size));
  };
  if (!memory.descriptor_ || repeat_if_interrupted(set_size) != 0) {
    throw CommError("shared memory: cannot get {} bytes: {}", size, std::strerror(errno));
  }
  memory.map();
  return memory;
}

bool SharedMemory::take(std::size_t offset, std::size_t size) const {
  return take_pages(descriptor_.get(), offset, size) == 0;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void SharedMemory::map() {
  void* address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (address == MAP_FAILED) {
    throw CommError("shared memory: cannot map {} bytes: {}", size_, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(address);
}

// The handle includes the inode, because the process may use the same descriptor number for another
// file later.
std::string SharedMemory::handle() const {
  struct stat status {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) {
    throw CommError("shared memory: its handle is closed");
  }
  return fmt::format("{} {} {} {}", ::getpid(), descriptor_.get(), size_,
                     static_cast<unsigned long>(status.st_ino));
}

SharedMemory SharedMemory::adopt(FileDescriptor descriptor) {
  SharedMemory memory;
  memory.descriptor_ = std::move(descriptor);
  struct stat status {};
  if (::fstat(memory.descriptor_.get(), &status) != 0) {
    throw CommError("shared memory of another process: {}", std::strerror(errno));
  }
  memory.size_ = static_cast<std::size_t>(status.st_size);
  memory.map();
  return memory;
}

SharedMemory SharedMemory::open(std::string_view handle) {
  const std::string text(handle);
  int pid = 0;
  int fd = 0;
  std::size_t size = 0;
  unsigned long inode = 0;
  if (std::sscanf(text.c_str(), "%d %d %zu %lu", &pid, &fd, &size, &inode) != 4) {
    throw CommError("shared memory: expected a handle, got '{}'", text);
  }
  SharedMemory memory;
  memory.size_ = size;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  memory.descriptor_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!memory.descriptor_ || ::fstat(memory.descriptor_.get(), &status) != 0) {
    throw CommError("shared memory of process {}: {}", pid, std::strerror(errno));
  }
  if (status.st_ino != inode || static_cast<std::size_t>(status.st_size) != size) {
    throw CommError("shared memory of process {}: it is not there any more", pid);
  }
  memory.map();
  memory.descriptor_ = FileDescriptor();
  return memory;
}

}  // namespace lockstep::process
