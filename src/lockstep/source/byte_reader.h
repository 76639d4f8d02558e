// Reads the bytes of a file, and unpacks it if it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lockstep::data {

class ByteReader {
 public:
  // Throws DataError if the file cannot be opened or is not a regular file.
  explicit ByteReader(const std::filesystem::path& path);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Fills `out`, or a part of it if the file ends, and returns the number of bytes. Throws
  // DataError, which names the file, if reading fails, or if the gzip data is damaged, incomplete
  // or followed by other data.
  std::size_t read(std::span<char> out);

  // An upper limit of the bytes that are left to read. It is exact for a plain file. For gzip it is
  // 64 MiB plus 100 times the packed size, which is more than measured data ever needs. Reading
  // more throws DataError, so a small file cannot fill the memory.
  std::uint64_t at_most_left() const;

  bool packed() const;

 private:
  class Source;
  class Plain;
  class Gzip;
  std::unique_ptr<Source> source_;
};

// The whole content, unpacked if it is gzip. Throws DataError as ByteReader does.
std::string read_unpacked(const std::filesystem::path& path);

}  // namespace lockstep::data
