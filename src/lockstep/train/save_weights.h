// Writes a model's weights to a plain file, for Python and for other programs:
//
//   ls::checkpoint::save_weights("net.safetensors", model);
#pragma once

#include <filesystem>

#include "lockstep/checkpoint/weights_file.h"
#include "lockstep/train/model.h"

namespace lockstep::checkpoint {

// As save_weights() of checkpoint/weights_file.h, without a copy of the weights. A tensor that the
// model registers under two names has both names in a .pth file, and safetensors refuses it.
inline void save_weights(const std::filesystem::path& path, const Model& model) {
  save_weights(path, model.view_state());
}

}  // namespace lockstep::checkpoint
