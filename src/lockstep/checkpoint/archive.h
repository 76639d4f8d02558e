// The zip archive that torch.save writes: a folder whose entries are not compressed.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

namespace lockstep::checkpoint {

// Reads the list of entries; their bytes stay where they are. Nothing is decompressed, so an
// archive needs no more memory than its file, whatever sizes it states.
class Archive {
 public:
  // Throws CheckpointError if `bytes` is not a zip archive, if an entry is compressed or encrypted
  // (torch.save does neither), if an entry reaches beyond the file, and if all entries together are
  // larger than the file, so that some overlap.
  explicit Archive(std::span<const char> bytes);

  // The bytes of an entry. `name` does not include the archive's folder: "data.pkl".
  std::optional<std::span<const char>> find(const std::string& name) const;

 private:
  std::map<std::string, std::span<const char>> entries_;
};

}  // namespace lockstep::checkpoint
