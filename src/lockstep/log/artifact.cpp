#include "lockstep/log/artifact.h"

#include <algorithm>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

// Whether the name leads to a file below the folder that it is relative to.
bool is_inside(const std::string& name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.front() == '/' || name.back() == '/') return false;
  if (!is_utf8(name) || std::ranges::any_of(name, is_control)) return false;
  return std::ranges::none_of(fs::path(name),
                              [](const fs::path& part) { return part == "." || part == ".."; });
}

}  // namespace

std::string artifact_name(const Artifact& artifact) {
  if (artifact.path && !artifact.content.empty()) {
    throw ConfigError("artifact '{}': expected a path or content, got both", artifact.name);
  }
  std::string name = artifact.name;
  if (name.empty() && artifact.path) name = artifact.path->filename().string();
  if (!is_inside(name)) {
    throw ConfigError(
        "artifact: expected a name like 'tables/worst.csv', without '..' and not beginning with "
        "'/', got '{}'",
        name);
  }
  return name;
}

std::uintmax_t artifact_size(const Artifact& artifact) {
  return artifact.path ? open_regular_file(*artifact.path).size : artifact.content.size();
}

std::string artifact_bytes(const Artifact& artifact) {
  return artifact.path ? read_file(*artifact.path) : artifact.content;
}

void store_artifact(const Artifact& artifact, const fs::path& folder) {
  const fs::path target = folder / artifact_name(artifact);
  make_directories(target.parent_path());
  if (!artifact.path) return write_file_atomically(target, artifact.content);
  std::error_code not_there;
  if (fs::equivalent(*artifact.path, target, not_there)) return;
  const OpenedFile file = open_regular_file(*artifact.path);
  write_file_atomically(target, [&](const WriteBytes& write) {
    std::vector<char> piece(std::size_t{1} << 20);
    while (const std::size_t count = read_some(file.descriptor, std::span(piece))) {
      write({piece.data(), count});
    }
  });
}

std::string image_file_name(const ImageName& image) {
  const std::string name = fmt::format("{}/{}.{:04}.png", image.loader, image.tag, image.epoch);
  if (image.tag.empty() || !is_inside(name)) {
    throw ConfigError(
        "image: expected a loader and a tag that can be the name of a file, got '{}' and '{}'",
        image.loader, image.tag);
  }
  return name;
}

}  // namespace lockstep
