#include "lockstep/checkpoint/file.h"

#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/pickle.h"
#include "lockstep/source/safetensors.h"
#include "lockstep/state/hash.h"

namespace lockstep::checkpoint {

void save(const std::filesystem::path& path, const StateDict& state) {
  StateDict sealed = state;
  sealed.set(kChecksumKey, content_hash(state));
  write_file_atomically(path, [&](const WriteBytes& write) { write_pickle(sealed, write); });
}

StateDict load(const std::filesystem::path& path) {
  auto [state, is_ours] = read(path);
  if (!is_ours) {
    throw CheckpointError("checkpoint {}: carries no checksum: it was not written by Lockstep",
                          path.string());
  }
  return std::move(state);
}

namespace {

Content read_content(const std::filesystem::path& path) {
  StateDict state = from_pickle(read_file(path));
  if (!state.contains(kChecksumKey)) return {.state = std::move(state), .is_ours = false};
  const auto expected = state.get<std::string>(kChecksumKey);
  state.erase(kChecksumKey);
  const std::string found = content_hash(state);
  if (found != expected) {
    throw CheckpointError(
        "damaged: its content hashes to {}, expected {}; if Python changed it and saved it again, "
        "remove the entry '{}' there before saving",
        found, printable(expected), kChecksumKey);
  }
  return {.state = std::move(state), .is_ours = true};
}

}  // namespace

Content read(const std::filesystem::path& path) {
  return reading<CheckpointError>({.path = path, .kind = "checkpoint"},
                                  [&] { return read_content(path); });
}

namespace {

// Copies, because the file may change after it was read.
Content read_safetensors(const std::filesystem::path& path) {
  return reading<CheckpointError>({.path = path, .kind = "checkpoint"}, [&] {
    const data::SafetensorsFile file(path);
    std::vector<StateDict::Entry> entries;
    for (const std::string& name : file.names()) {
      entries.emplace_back(name, file.read(name).clone());
    }
    return Content{.state = StateDict(std::move(entries)), .is_ours = false};
  });
}

}  // namespace

StateDict load_weights(const std::filesystem::path& path) {
  const bool is_safetensors = path.extension() == ".safetensors";
  return weights_in(is_safetensors ? read_safetensors(path) : read(path), path);
}

StateDict weights_in(const Content& content, const std::filesystem::path& path) {
  StateDict weights = content.state;
  for (const char* const key : {"model_state_dict", "state_dict", "model"}) {
    if (weights.contains(key) && weights.at(key).get_if<StateDict>() != nullptr) {
      weights = weights.get<StateDict>(key);
      break;
    }
  }
  const std::string_view wrapper = "module.";
  bool is_wrapped = weights.size() > 0 && !content.is_ours;
  for (const auto& [name, value] : weights) {
    if (value.get_if<torch::Tensor>() == nullptr) {
      throw CheckpointError(
          "checkpoint {}: {} is {}, expected weights: tensors by name, alone or as "
          "model_state_dict, state_dict or model",
          path.string(), printable(name), value.kind());
    }
    is_wrapped &= name.starts_with(wrapper);
  }
  if (!is_wrapped) return weights;
  std::vector<StateDict::Entry> bare;
  for (const auto& [name, value] : weights) bare.emplace_back(name.substr(wrapper.size()), value);
  return StateDict(std::move(bare));
}

}  // namespace lockstep::checkpoint
