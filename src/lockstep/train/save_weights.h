// Writes a model's weights to a plain file, for Python and for other programs:
//
//   ls::checkpoint::save_weights("net.safetensors", model);
#pragma once

#include <filesystem>

#include "lockstep/checkpoint/weights_file.h"
#include "lockstep/train/model.h"

namespace lockstep::checkpoint {

// As save_weights() of checkpoint/weights_file.h, without a copy of the weights. Tied weights are
// written once, under the first of their names.
inline void save_weights(const std::filesystem::path& path, const Model& model) {
  save_weights(path, model.view_state());
}

}  // namespace lockstep::checkpoint
