#include "lockstep/source/zip.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include <zlib.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using ZipBytes = std::span<const char>;

ZipBytes zip_part(ZipBytes bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) {
    throw DataError("damaged: the archive is cut short");
  }
  return bytes.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

// Zip is little-endian, like every machine for which this is built.
template <typename T>
T zip_number(ZipBytes bytes, std::uint64_t offset) {
  T value = 0;
  std::memcpy(&value, zip_part(bytes, offset, sizeof value).data(), sizeof value);
  return value;
}

std::string_view zip_text(ZipBytes bytes) {
  return {bytes.data(), bytes.size()};
}

void expect_signature(ZipBytes bytes, std::uint64_t offset, std::string_view signature) {
  if (zip_text(zip_part(bytes, offset, signature.size())) != signature) {
    throw DataError("damaged: the archive's list of entries is broken");
  }
}

struct ZipDirectory {
  std::uint64_t offset = 0;
  std::uint64_t entries = 0;
};

// Finds the record at the end of the file. If the file is larger than 4 GB or has more than 65,535
// entries, a larger form of the record stands before it.
ZipDirectory find_directory(ZipBytes file) {
  constexpr std::uint64_t kRecord = 22, kLocator = 20, kLongestComment = 65'535;
  // Only a comment may follow, so a large file that is no archive is not searched as a whole.
  const std::size_t tail = std::min<std::uint64_t>(file.size(), kRecord + kLongestComment);
  const std::size_t found = zip_text(file.last(tail)).rfind("PK\5\6");
  const std::size_t end = file.size() - tail + found;
  if (found == std::string_view::npos || file.size() - end < kRecord) {
    throw DataError("not a whole zip archive: its end is missing");
  }
  if (end >= kLocator && zip_text(zip_part(file, end - kLocator, 4)) == "PK\6\7") {
    const auto larger = zip_number<std::uint64_t>(file, end - kLocator + 8);
    expect_signature(file, larger, "PK\6\6");
    return {.offset = zip_number<std::uint64_t>(zip_part(file, larger, 56), 48),
            .entries = zip_number<std::uint64_t>(zip_part(file, larger, 56), 32)};
  }
  return {.offset = zip_number<std::uint32_t>(file, end + 16),
          .entries = zip_number<std::uint16_t>(file, end + 10)};
}

// Sizes of 4 GB and more are in an extra field; then the plain field is 0xffffffff.
struct ZipSizes {
  std::uint64_t size = 0;
  std::uint64_t packed = 0;
  std::uint64_t offset = 0;  // of the member's own header
};

void read_large_numbers(ZipBytes extra, ZipSizes& sizes) {
  std::uint64_t at = 0;
  while (extra.size() - at >= 4) {
    const ZipBytes field = zip_part(extra, at + 4, zip_number<std::uint16_t>(extra, at + 2));
    if (zip_number<std::uint16_t>(extra, at) == 1) {
      std::uint64_t used = 0;
      for (std::uint64_t* const value : {&sizes.size, &sizes.packed, &sizes.offset}) {
        if (*value != 0xffffffff) continue;
        *value = zip_number<std::uint64_t>(field, used);
        used += 8;
      }
      return;
    }
    at += 4 + field.size();
  }
}

// Reads the entry at `at` of the list, and moves `at` to the next one.
ZipMember read_member(ZipBytes file, std::uint64_t& at) {
  expect_signature(file, at, "PK\1\2");
  const ZipBytes header = zip_part(file, at, 46);
  const auto name_size = zip_number<std::uint16_t>(header, 28);
  const auto extra_size = zip_number<std::uint16_t>(header, 30);
  ZipSizes sizes{.size = zip_number<std::uint32_t>(header, 24),
                 .packed = zip_number<std::uint32_t>(header, 20),
                 .offset = zip_number<std::uint32_t>(header, 42)};
  read_large_numbers(zip_part(file, at + 46 + name_size, extra_size), sizes);
  ZipMember member{.name = std::string(zip_text(zip_part(file, at + 46, name_size))),
                   .method = zip_number<std::uint16_t>(header, 10),
                   .is_encrypted = (zip_number<std::uint16_t>(header, 8) & 1U) != 0,
                   .size = sizes.size,
                   .checksum = zip_number<std::uint32_t>(header, 16),
                   .packed = {}};
  at += std::uint64_t{46} + name_size + extra_size + zip_number<std::uint16_t>(header, 32);

  expect_signature(file, sizes.offset, "PK\3\4");
  const ZipBytes own = zip_part(file, sizes.offset, 30);
  const std::uint64_t before =
      std::uint64_t{30} + zip_number<std::uint16_t>(own, 26) + zip_number<std::uint16_t>(own, 28);
  member.packed = zip_part(file, sizes.offset + before, sizes.packed);
  return member;
}

}  // namespace

std::vector<ZipMember> read_zip(ZipBytes bytes) {
  const ZipDirectory directory = find_directory(bytes);
  std::vector<ZipMember> members;
  std::uint64_t at = directory.offset;
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    members.push_back(read_member(bytes, at));
    total += members.back().packed.size();
    if (total > bytes.size()) throw DataError("damaged: entries of the archive overlap");
  }
  return members;
}

namespace {

void check_zip_checksum(std::uint32_t found, std::uint32_t expected) {
  if (found == expected) return;
  throw DataError("damaged: its checksum is {:08x}, expected {:08x}", found, expected);
}

}  // namespace

struct ZipReader::Stream {
  Stream() {
    constexpr int kWithoutHeader = -MAX_WBITS;
    if (inflateInit2(&zlib, kWithoutHeader) != Z_OK) throw Error("zlib: cannot start to inflate");
  }
  ~Stream() { inflateEnd(&zlib); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  z_stream zlib{};
};

ZipReader::ZipReader(const ZipMember& member) : left_(member.packed), expected_(member.checksum) {
  constexpr std::uint16_t kDeflated = 8;
  if (member.is_encrypted || member.method != kDeflated) {
    throw DataError("it is {}: expected a member that is stored or deflated",
                    member.is_encrypted ? std::string("encrypted")
                                        : fmt::format("packed by method {}", member.method));
  }
  constexpr std::uint64_t kLargestRatio = 1032;
  if (member.size / kLargestRatio > member.packed.size()) {
    throw DataError("damaged: {} packed bytes cannot unpack to {}", member.packed.size(),
                    member.size);
  }
  stream_ = std::make_unique<Stream>();
}

ZipReader::~ZipReader() = default;

std::size_t ZipReader::inflate_some(std::span<char> out) {
  z_stream& zlib = stream_->zlib;
  constexpr std::size_t kPiece = 1U << 30;  // zlib counts in 32 bits
  std::size_t got = 0;
  while (got < out.size() && !ended_) {
    const std::size_t given = std::min(left_.size(), kPiece);
    const std::size_t room = std::min(out.size() - got, kPiece);
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left_.data()));
    zlib.avail_in = static_cast<uInt>(given);
    zlib.next_out = reinterpret_cast<Bytef*>(out.data() + got);
    zlib.avail_out = static_cast<uInt>(room);
    const int status = inflate(&zlib, Z_NO_FLUSH);
    const std::size_t made = room - zlib.avail_out;
    checksum_ = static_cast<std::uint32_t>(crc32(
        checksum_, reinterpret_cast<const Bytef*>(out.data() + got), static_cast<uInt>(made)));
    got += made;
    left_ = left_.subspan(given - zlib.avail_in);
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK) {
      throw DataError("damaged: {}", zlib.msg != nullptr ? zlib.msg : zError(status));
    }
  }
  return got;
}

void ZipReader::read(std::span<char> out) {
  const std::size_t got = inflate_some(out);
  if (got < out.size()) {
    throw DataError("damaged: it unpacks to {} bytes fewer than the archive says",
                    out.size() - got);
  }
}

void ZipReader::finish() {
  char extra = 0;
  if (inflate_some({&extra, 1}) != 0) {
    throw DataError("damaged: it unpacks to more bytes than the archive says");
  }
  check_zip_checksum(checksum_, expected_);
}

void unpack_zip_member(const ZipMember& member, const WriteBytes& write) {
  if (member.is_stored()) {
    const auto found =
        crc32_z(0, reinterpret_cast<const Bytef*>(member.packed.data()), member.packed.size());
    check_zip_checksum(static_cast<std::uint32_t>(found), member.checksum);
    write(zip_text(member.packed));
    return;
  }
  ZipReader reader(member);
  constexpr std::uint64_t kPiece = 1 << 20;
  std::string piece;
  for (std::uint64_t left = member.size; left > 0; left -= piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min(left, kPiece)));
    reader.read(piece);
    write(piece);
  }
  reader.finish();
}

}  // namespace lockstep::data
