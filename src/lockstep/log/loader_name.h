// Loaders' names become names of files and folders.
#pragma once

#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

// Throws ConfigError where `name` cannot be a file's name inside the log folder: empty, "..", with
// a slash or a control character, or reserved for what belongs to no loader ("_epoch_").
void check_loader_name(const std::string& name);

// The name under which a record is filed: kEpochKey for the epoch's own, else its loader, checked.
const std::string& file_name_of(const Record& record);

}  // namespace lockstep
