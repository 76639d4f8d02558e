// Plain files of weights: tensors by name and nothing else, as other programs expect them.
//
//   ls::checkpoint::save_weights("net.pth", model.state());
//   model.load_state_dict(torch.load("net.pth"))                        # in Python
//
// A run's checkpoint has more in it (checkpoint/file.h). train/save_weights.h takes a Model.
#pragma once

#include <filesystem>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// Writes the file completely or not at all. The extension decides the format:
// - .pth or .pt: as torch.save(state_dict) writes it, without a checksum. Tensors that share their
//   values in memory share them in the file, too.
// - .safetensors: the bytes that the Python library writes for the same tensors, with the metadata
//   {"format": "pt"}.
// Throws ConfigError for another extension. Throws CheckpointError, which names the weight, if a
// value is not a tensor, and if the format cannot hold it; safetensors refuses weights that share
// memory, as the Python library does. load_weights() of checkpoint/file.h reads both formats.
void save_weights(const std::filesystem::path& path, const StateDict& weights);

// The same in the format safetensors, whatever the extension is.
void save_safetensors(const std::filesystem::path& path, const StateDict& weights);

}  // namespace lockstep::checkpoint
