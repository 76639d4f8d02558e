// Reads files out of a tar archive, plain or gzip, without unpacking it to the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::data {

struct TarOptions {
  std::vector<std::string> names;                  // of the wanted files, with their folders
  std::int64_t max_bytes = std::int64_t{1} << 30;  // of all of them together
};

// The content of the wanted files by name. Reads the archive to its end, so that the checksum of
// gzip is compared. Throws DataError, which names the archive and the byte, if it is damaged, ends
// early, lacks a wanted file or has it twice, or if the files are larger than allowed.
std::map<std::string, std::string> read_tar(const std::filesystem::path& path,
                                            const TarOptions& options);

}  // namespace lockstep::data
