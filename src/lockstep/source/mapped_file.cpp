#include "lockstep/source/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::data {

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const OpenedFile file = open_regular_file(path_);
  const auto size = static_cast<std::size_t>(file.size);
  if (size == 0) return;  // mmap refuses to map nothing
  // Read-only and shared: the kernel needs no memory of its own for it, whatever its size is.
  void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor.get(), 0);
  if (begin == MAP_FAILED) {
    throw DataError("{}: cannot map its {} bytes: {}", path_.string(), size, std::strerror(errno));
  }
  bytes_ = {static_cast<const char*>(begin), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

std::span<const char> MappedFile::part(std::uint64_t offset, std::uint64_t size,
                                       std::string_view what) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset) {
    throw DataError("{}: {}: expected {} bytes from byte {} on, but the file has only {}",
                    path_.string(), what, size, offset, bytes_.size());
  }
  return bytes_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

}  // namespace lockstep::data
