// A checkpoint on disk is whole or it is not there: written aside, synced, renamed, and with a
// checksum of its content inside, which is checked when it is read.
#pragma once

#include <filesystem>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The key under which a file carries the hash of everything else in it.
inline constexpr const char* kChecksumKey = "checksum";

void save(const std::filesystem::path& path, const StateDict& state);

// Throws CheckpointError where the file is missing, cut short, damaged or something else.
StateDict load(const std::filesystem::path& path);

// What is in any file of torch.save, Python's too. A checksum is checked where there is one.
struct Content {
  StateDict state;
  bool is_ours;
};
Content read(const std::filesystem::path& path);

// A model's weights by their names, out of a checkpoint or out of a file that Python wrote: a
// state_dict, or a dictionary that has one as model_state_dict, state_dict or model. The `module.`
// that DistributedDataParallel puts before every name is left out of Python's.
StateDict load_weights(const std::filesystem::path& path);
// The same out of what was read of such a file.
StateDict weights_in(const Content& content, const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
