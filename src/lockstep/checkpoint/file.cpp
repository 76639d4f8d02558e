#include "lockstep/checkpoint/file.h"

#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {

void save(const std::filesystem::path& path, const StateDict& state) {
  StateDict sealed = state;
  sealed.set(kChecksumKey, content_hash(state));
  const std::vector<char> bytes = to_pickle(sealed);
  write_file_atomically(path, std::string_view(bytes.data(), bytes.size()));
}

StateDict load(const std::filesystem::path& path) {
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const Error& error) {
    throw CheckpointError("checkpoint {}", error.what());
  }
  const std::string what = "checkpoint " + path.string();
  StateDict state = from_pickle({bytes.begin(), bytes.end()}, what);
  if (!state.contains(kChecksumKey)) {
    throw CheckpointError("{}: carries no checksum: it was not written by Lockstep", what);
  }
  const auto expected = state.get<std::string>(kChecksumKey);
  StateDict content;
  for (const auto& [key, value] : state) {
    if (key != kChecksumKey) content.set(key, value);
  }
  const std::string found = content_hash(content);
  if (found != expected) {
    throw CheckpointError("{}: damaged: its content hashes to {}, expected {}", what, found,
                          expected);
  }
  return content;
}

}  // namespace lockstep::checkpoint
