// Makes zip archives for tests, valid or damaged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct ZipEntry {
  std::string name;
  std::string content = {};
  std::uint16_t method = 0;    // 0: stored, 8: deflated
  std::uint16_t flags = 0;     // 1: encrypted
  bool is_large = false;       // its sizes and offset are in the field for 4 GB and more
  bool shares_first = false;   // its content is that of the first entry
  std::uint64_t unpacked = 0;  // the size that it claims; 0: the size of its content
  std::uint32_t checksum = 0;  // of the unpacked content
};

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string zip(const std::vector<ZipEntry>& entries) {
  std::string out, list;
  for (const ZipEntry& entry : entries) {
    std::uint64_t offset = 0;
    std::uint64_t size = entries.front().content.size();
    if (!entry.shares_first) {
      offset = out.size();
      size = entry.content.size();
      out += "PK\3\4";
      for (const std::uint16_t value : {std::uint16_t{20}, entry.flags, entry.method})
        put(out, value);
      out += std::string(8, '\0');  // time, date and checksum
      put(out, static_cast<std::uint32_t>(size));
      put(out, static_cast<std::uint32_t>(size));
      put(out, static_cast<std::uint16_t>(entry.name.size()));
      put(out, std::uint16_t{0});
      out += entry.name + entry.content;
    }
    const std::uint64_t unpacked = entry.unpacked != 0 ? entry.unpacked : size;
    constexpr std::uint32_t kElsewhere = 0xffffffff;
    list += "PK\1\2";
    for (const std::uint16_t value :
         {std::uint16_t{20}, std::uint16_t{20}, entry.flags, entry.method}) {
      put(list, value);
    }
    list += std::string(4, '\0');  // time and date
    put(list, entry.checksum);
    put(list, entry.is_large ? kElsewhere : static_cast<std::uint32_t>(size));
    put(list, entry.is_large ? kElsewhere : static_cast<std::uint32_t>(unpacked));
    put(list, static_cast<std::uint16_t>(entry.name.size()));
    put(list, static_cast<std::uint16_t>(entry.is_large ? 28 : 0));
    list += std::string(10, '\0');  // comment, disk, attributes
    put(list, entry.is_large ? kElsewhere : static_cast<std::uint32_t>(offset));
    list += entry.name;
    if (!entry.is_large) continue;
    put(list, std::uint16_t{1});
    put(list, std::uint16_t{24});
    for (const std::uint64_t value : {unpacked, size, offset}) put(list, value);
  }
  const std::uint64_t begin = out.size();
  out += list;
  out += "PK\5\6" + std::string(4, '\0');
  for (int i = 0; i < 2; ++i) put(out, static_cast<std::uint16_t>(entries.size()));
  put(out, static_cast<std::uint32_t>(list.size()));
  put(out, static_cast<std::uint32_t>(begin));
  put(out, std::uint16_t{0});
  return out;
}

}  // namespace lockstep::checkpoint
