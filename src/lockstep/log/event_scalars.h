// Reads which scalars the event files of earlier processes have. A run that goes on writes the
// scalars that are missing there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// The tags of scalars, with their steps. A scalar that was written several times is there as often.
using ScalarSteps = std::multiset<std::pair<std::string, std::int64_t>>;

// Those of all event files in `folder` whose tags end with `suffix`, from `first_step` on, as
// TensorBoard shows them: the start of a session drops earlier scalars from its step on, and a file
// ends for TensorBoard at its first incomplete or damaged record. Empty if there is no such folder.
// Reads all files as a whole. Throws Error if a file cannot be read.
ScalarSteps read_scalar_steps(const std::filesystem::path& folder, std::string_view suffix,
                              std::int64_t first_step = 0);

}  // namespace lockstep
