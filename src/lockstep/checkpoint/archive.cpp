#include "lockstep/checkpoint/archive.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/source/zip.h"

namespace lockstep::checkpoint {
namespace {

std::vector<data::ZipMember> members_of(std::span<const char> bytes) {
  try {
    return data::read_zip(bytes);
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace

Archive::Archive(std::span<const char> bytes) {
  const std::vector<data::ZipMember> members = members_of(bytes);
  if (members.empty()) return;
  const std::string folder = members[0].name.substr(0, members[0].name.find('/') + 1);
  for (const data::ZipMember& member : members) {
    if (!member.is_stored()) {
      throw CheckpointError(
          "its entry {} is {}, which torch.save never does; expected entries that are stored as "
          "they are",
          printable(member.name), member.is_encrypted ? "encrypted" : "compressed");
    }
    if (!member.name.starts_with(folder)) continue;
    entries_.emplace(member.name.substr(folder.size()), member.packed);
  }
}

std::optional<std::span<const char>> Archive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

}  // namespace lockstep::checkpoint
