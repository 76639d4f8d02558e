// A checkpoint on disk is complete or does not exist: it is written to a temporary file, synced and
// renamed. It contains a checksum of its content, which is checked when the file is read.
#pragma once

#include <filesystem>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The key of the hash of everything else in the file.
inline constexpr const char* kChecksumKey = "checksum";

void save(const std::filesystem::path& path, const StateDict& state);

// Throws CheckpointError if the file is missing, truncated, damaged or something else.
StateDict load(const std::filesystem::path& path);

// The content of any file of torch.save, Python's too. A checksum is checked if there is one.
struct Content {
  StateDict state;
  bool is_ours;
};
Content read(const std::filesystem::path& path);

// A model's weights by name, from a checkpoint or from a file that Python wrote: a state_dict, or a
// dictionary that has one as model_state_dict, state_dict or model. From the names of Python's
// files, the `module.` that DistributedDataParallel puts before every name is removed. A file whose
// name ends with .safetensors is read as such.
StateDict load_weights(const std::filesystem::path& path);
// The same from the content of such a file.
StateDict weights_in(const Content& content, const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
