#include "lockstep/base/error.h"

#include <algorithm>
#include <filesystem>
#include <new>

namespace lockstep {

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "not enough memory: a smaller batch_size or fewer workers need less";
  }
  if (const auto* const failed = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return printable_lines(
        fmt::format("{}: {}", failed->path1().string(), failed->code().message()));
  }
  const std::string text = error.what();
  // This module does not include torch, so it finds c10::Error's stack frames by their first words.
  const auto frames = std::min(text.find("\nException raised from"), text.find("\nframe #"));
  return printable_lines(text.substr(0, frames));
}

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? 2 : 1;
}

}  // namespace lockstep
