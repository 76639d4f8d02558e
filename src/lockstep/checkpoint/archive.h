// The zip archive that torch.save writes: a folder whose entries are stored as they are.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

namespace lockstep::checkpoint {

// Reads the list of entries; their bytes stay where they are. Nothing is unpacked, so an archive
// takes no more memory than its file, whatever it promises.
class Archive {
 public:
  // Throws CheckpointError where `bytes` is no zip archive, where an entry is compressed or
  // encrypted (torch.save does neither), where an entry reaches beyond the file, and where
  // all entries together are larger than the file, so that some overlap.
  explicit Archive(std::span<const char> bytes);

  // The bytes of the entry, named without the archive's folder: "data.pkl".
  std::optional<std::span<const char>> find(const std::string& name) const;

 private:
  std::map<std::string, std::span<const char>> entries_;
};

}  // namespace lockstep::checkpoint
