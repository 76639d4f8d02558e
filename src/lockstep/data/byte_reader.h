// The bytes of a file, unpacked where it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::data {

class ByteReader {
 public:
  // Throws DataError where the file cannot be opened.
  explicit ByteReader(const std::filesystem::path& path);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Fills `out` as far as the file goes and returns how many bytes that was. Throws DataError
  // naming the file where reading fails or what is packed is damaged, cut short or followed by
  // something.
  std::size_t read(std::span<char> out);

  // No more than this many bytes can be left to read: exact for a plain file; for gzip 64 MiB and
  // 100 times its packed size, which no data of a measurement reach. Reading more is refused with a
  // DataError: a small file cannot fill the memory.
  std::uint64_t at_most_left() const;

  bool packed() const;

 private:
  class Source;
  class Plain;
  class Gzip;
  std::unique_ptr<Source> source_;
};

}  // namespace lockstep::data
