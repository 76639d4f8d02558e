// Which scalars the event files of earlier runs hold, so that a resumed run can write again what
// they lack.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// The tags of scalars, with their steps.
using ScalarSteps = std::set<std::pair<std::string, std::int64_t>>;

// Those of all event files in `folder` whose tags end with `suffix`, as TensorBoard shows them: the
// start of a session drops earlier scalars from its step on, and a file ends for TensorBoard at its
// first incomplete or damaged record. Empty if there is no such folder. Reads all files as a whole.
// Throws Error if a file cannot be read.
ScalarSteps read_scalar_steps(const std::filesystem::path& folder, std::string_view suffix);

}  // namespace lockstep
