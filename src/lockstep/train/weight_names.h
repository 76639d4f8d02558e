// The weights of a file under the names that the options of Weights give them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/state/state_dict.h"
#include "lockstep/train/weights.h"

namespace lockstep {

struct FileWeight {
  std::string in_file;  // its name there
  std::string name;     // after remove_prefix, rename and add_prefix
  torch::Tensor tensor;
};

// `file` has tensors only. Throws ConfigError, which names the option and the nearest names, if
// remove_prefix or a pattern of rename fits no name, and CheckpointError if two weights get one
// name.
std::vector<FileWeight> renamed_weights(const StateDict& file, const Weights& weights);

// Whether two tensors of a file are one weight that Python saved under two names, for example
// lm_head.weight of nanoGPT, which is its embedding. Vectors, and matrices of one number, may be
// equal by chance: many are zero when training begins.
bool is_same_weight(const torch::Tensor& one, const torch::Tensor& other);

// The new name, if the pattern `rename.from` fits `name`.
std::optional<std::string> renamed(const WeightRename& rename, const std::string& name);

}  // namespace lockstep
