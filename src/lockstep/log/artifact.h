// Files that belong to a run: what a callback draws, lists or exports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

// A file on the disk, or bytes in memory that are to become one.
//
//   state.log_artifact({.path = "model.onnx"});
//   state.log_artifact({.name = "tables/worst.csv", .content = text});
struct Artifact {
  // The name under which it is stored. It may have folders. Default: the name of the file.
  std::string name = {};
  std::optional<std::filesystem::path> path = {};
  std::string content = {};  // if there is no path
};

// Throws ConfigError if the artifact has no name or a name that leads out of the folder of
// artifacts, or if it has a path and content, too.
std::string artifact_name(const Artifact& artifact);

// These read the file, if it is one. They throw Error with the path and the cause.
std::uintmax_t artifact_size(const Artifact& artifact);
std::string artifact_bytes(const Artifact& artifact);

// Writes it to <folder>/<its name>, completely or not at all, and replaces a file that is there.
// Does nothing if it is that file.
void store_artifact(const Artifact& artifact, const std::filesystem::path& folder);

// "valid/confusion_matrix.0003.png": the name of an image's file. Throws ConfigError if the tag
// cannot be part of it.
struct ImageName {
  std::string loader = {};
  std::string tag = {};
  std::int64_t epoch = 0;
};
std::string image_file_name(const ImageName& image);

}  // namespace lockstep
