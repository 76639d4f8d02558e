// Writes a model as TorchScript, which torch.jit.load reads in Python and torch::jit::load in C++,
// without Lockstep.
//
//   ls::exporting::to_torchscript(model, {{"features", images}}, "model.pt");
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/exporting/comparison.h"
#include "lockstep/train/model.h"

namespace lockstep::exporting {

struct TorchScriptOptions {
  bool dynamic_batch = true;  // the file takes batches of any size; else only that of the example
  double tolerance = 1e-5;    // largest difference from the model, relative to the largest value
};

// Writes what the model computes in evaluation mode. `inputs` is an example: named tensors, in the
// order in which forward takes them; the names become those of the arguments. Parameters and
// buffers keep their names. A model that came as TorchScript (Model::script) is written as it is.
//
// The file is kept only if it was read back and computes the same as the model. Several outputs
// become a tuple. Throws ConfigError if the model cannot be traced, or if the outputs differ.
Exported to_torchscript(const Model& model, const Batch& inputs, const std::filesystem::path& path,
                        const TorchScriptOptions& options = {});

}  // namespace lockstep::exporting
