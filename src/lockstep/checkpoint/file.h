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

}  // namespace lockstep::checkpoint
