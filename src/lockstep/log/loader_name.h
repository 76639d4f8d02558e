// Loaders' names become names of files and folders.
#pragma once

#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

// Throws ConfigError if `name` cannot be the name of a file in the log folder: if it is empty,
// begins with a dot, has a slash or a control character, or is reserved for records without a
// loader ("_epoch_").
void check_loader_name(const std::string& name);

// The file or folder name for a record: kEpochKey for a record of an epoch, else the name of its
// loader, which is checked.
const std::string& file_name_of(const Record& record);

}  // namespace lockstep
