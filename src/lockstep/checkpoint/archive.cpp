#include "lockstep/checkpoint/archive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

using Bytes = std::span<const char>;

Bytes part(Bytes bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) {
    throw CheckpointError("damaged: the archive is cut short");
  }
  return bytes.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

// Zip is little-endian, like every machine for which this is built.
template <typename T>
T number(Bytes bytes, std::uint64_t offset) {
  T value = 0;
  std::memcpy(&value, part(bytes, offset, sizeof value).data(), sizeof value);
  return value;
}

std::string_view text(Bytes bytes) {
  return {bytes.data(), bytes.size()};
}

void expect_signature(Bytes bytes, std::uint64_t offset, std::string_view signature) {
  if (text(part(bytes, offset, signature.size())) != signature) {
    throw CheckpointError("damaged: the archive's list of entries is broken");
  }
}

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t entries = 0;
};

// Finds the record at the end of the file. If the file is larger than 4 GB or has more than 65,535
// entries, a larger form of the record stands before it.
Directory find_directory(Bytes file) {
  constexpr std::uint64_t kRecord = 22, kLocator = 20;
  const std::size_t end = text(file).rfind("PK\5\6");
  if (end == std::string_view::npos || file.size() - end < kRecord) {
    throw CheckpointError("not a whole zip archive: its end is missing");
  }
  if (end >= kLocator && text(part(file, end - kLocator, 4)) == "PK\6\7") {
    const auto larger = number<std::uint64_t>(file, end - kLocator + 8);
    expect_signature(file, larger, "PK\6\6");
    return {.offset = number<std::uint64_t>(part(file, larger, 56), 48),
            .entries = number<std::uint64_t>(part(file, larger, 56), 32)};
  }
  return {.offset = number<std::uint32_t>(file, end + 16),
          .entries = number<std::uint16_t>(file, end + 10)};
}

struct ArchiveEntry {
  std::string_view name;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  // of its local header
  std::uint64_t next = 0;    // offset of the next entry in the list
};

// Sizes of 4 GB and more are in an extra field; then the plain field is 0xffffffff.
void read_large_numbers(Bytes extra, std::uint64_t& size, std::uint64_t& packed,
                        std::uint64_t& offset) {
  std::uint64_t at = 0;
  while (extra.size() - at >= 4) {
    const Bytes field = part(extra, at + 4, number<std::uint16_t>(extra, at + 2));
    if (number<std::uint16_t>(extra, at) == 1) {
      std::uint64_t used = 0;
      for (std::uint64_t* const value : {&size, &packed, &offset}) {
        if (*value != 0xffffffff) continue;
        *value = number<std::uint64_t>(field, used);
        used += 8;
      }
      return;
    }
    at += 4 + field.size();
  }
}

ArchiveEntry read_entry(Bytes file, std::uint64_t at) {
  expect_signature(file, at, "PK\1\2");
  const Bytes header = part(file, at, 46);
  const auto name_size = number<std::uint16_t>(header, 28);
  const auto extra_size = number<std::uint16_t>(header, 30);
  ArchiveEntry entry{.name = text(part(file, at + 46, name_size)),
                     .size = number<std::uint32_t>(header, 24),
                     .offset = number<std::uint32_t>(header, 42),
                     .next = at + 46 + name_size + extra_size + number<std::uint16_t>(header, 32)};
  std::uint64_t packed = number<std::uint32_t>(header, 20);
  read_large_numbers(part(file, at + 46 + name_size, extra_size), entry.size, packed, entry.offset);
  const bool is_encrypted = (number<std::uint16_t>(header, 8) & 1U) != 0;
  const bool is_compressed = number<std::uint16_t>(header, 10) != 0 || packed != entry.size;
  if (is_encrypted || is_compressed) {
    throw CheckpointError(
        "its entry {} is {}, which torch.save never does; expected entries that are stored as they "
        "are",
        printable(entry.name), is_encrypted ? "encrypted" : "compressed");
  }
  return entry;
}

Bytes content(Bytes file, const ArchiveEntry& entry) {
  expect_signature(file, entry.offset, "PK\3\4");
  const Bytes header = part(file, entry.offset, 30);
  const std::uint64_t before =
      std::uint64_t{30} + number<std::uint16_t>(header, 26) + number<std::uint16_t>(header, 28);
  return part(file, entry.offset + before, entry.size);
}

}  // namespace

Archive::Archive(Bytes bytes) {
  const Directory directory = find_directory(bytes);
  std::uint64_t at = directory.offset;
  std::uint64_t total = 0;
  std::string folder;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const ArchiveEntry entry = read_entry(bytes, at);
    at = entry.next;
    total += entry.size;
    if (total > bytes.size()) throw CheckpointError("damaged: entries of the archive overlap");
    if (i == 0) folder = entry.name.substr(0, entry.name.find('/') + 1);
    if (!entry.name.starts_with(folder)) continue;
    entries_.emplace(entry.name.substr(folder.size()), content(bytes, entry));
  }
}

std::optional<Bytes> Archive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

}  // namespace lockstep::checkpoint
