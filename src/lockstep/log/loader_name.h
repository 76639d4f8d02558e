// Loaders' names become names of files and folders.
#pragma once

#include <cstdint>
#include <map>
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

// The metrics of epochs, for each file or folder: by its name, and then by epoch. Epochs without
// metrics are left out. The names of loaders are checked.
std::map<std::string, std::map<std::int64_t, Metrics>> by_loader(
    const std::map<std::int64_t, EpochMetrics>& history);

}  // namespace lockstep
