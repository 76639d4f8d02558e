// Zip archives: the list of their members, and the content of packed ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file.h"

namespace lockstep::data {

struct ZipMember {
  std::string name;
  std::uint16_t method = 0;  // 0: stored as it is, 8: deflated
  bool is_encrypted = false;
  std::uint64_t size = 0;        // unpacked, as the archive says
  std::uint32_t checksum = 0;    // CRC-32 of the unpacked bytes
  std::span<const char> packed;  // in the archive

  bool is_stored() const { return method == 0 && !is_encrypted && packed.size() == size; }
};

// All members, in the archive's order. Their bytes stay where they are. Throws DataError if `bytes`
// is not a zip archive, if a member reaches beyond its end, and if all members together are larger
// than the archive, so that some overlap. The large form (zip64) is read, too.
std::vector<ZipMember> read_zip(std::span<const char> bytes);

// Unpacks a deflated member piece by piece. The archive has to outlive it.
class ZipReader {
 public:
  // Throws DataError if the member is encrypted or packed by another method, or if it claims a size
  // that deflate cannot reach.
  explicit ZipReader(const ZipMember& member);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // Fills `out`. Throws DataError if the data is damaged or ends before.
  void read(std::span<char> out);

  // Throws DataError if there is more data, or if the checksum of all that was read is wrong.
  void finish();

 private:
  struct Stream;

  // Inflates into `out` and returns the number of bytes: fewer only at the end.
  std::size_t inflate_some(std::span<char> out);

  std::span<const char> left_;
  std::uint32_t expected_ = 0;
  std::uint32_t checksum_ = 0;
  bool ended_ = false;
  std::unique_ptr<Stream> stream_;
};

// Gives the content of a stored or deflated member to `write`, piece by piece. Throws DataError as
// ZipReader does. The checksum is compared at the end, so `write` may have got damaged bytes
// before.
void unpack_zip_member(const ZipMember& member, const WriteBytes& write);

}  // namespace lockstep::data
