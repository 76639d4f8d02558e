// Makes deflated members of zip archives for tests.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <zlib.h>

#include "tests/checkpoint/zip.h"

namespace lockstep::data {

inline checkpoint::ZipEntry deflated_entry(std::string name, const std::string& text) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  const auto checksum = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  return {.name = std::move(name),
          .content = packed,
          .method = 8,
          .unpacked = text.size(),
          .checksum = checksum};
}

}  // namespace lockstep::data
